"""The stores put together: the application of ``cdc sink`` with Spark's own settings, and what asks a store or builds
it anew: rebuilds, dead letters, verifications, waits for freshness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from cdc.freshness.run import WaitPorts, Waits
from cdc.operate.dead_letter_orders import LetterPorts, LettersRun
from cdc.operate.rebuild import Rebuild, RebuildPorts
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ConfigError
from cdc.record.tables_aside import lacking
from cdc.record.topic_names import dead_topic, progress_topic
from cdc.settings.client_options import allowed_urls, java_options
from cdc.settings.model import Settings, require_postgres
from cdc.wiring import open_state, require_broker
from cdc.wiring.debezium import reading_debezium, snapshot_ends
from sinks.contract.stores import (
    jar_sets,
    kind_of,
    needed_classes,
    open_store,
    parts_of,
    sink_settings,
    spec_of,
    with_parts,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.operate.dead_letter_orders import ReadsStore
    from cdc.record.schema import TableSchema
    from cdc.verification.passes import VerificationProgress
    from cdc.verification.run import KnownPipeline, Verification
    from connectors.spark_log.sink_log import SinkLog
    from sinks.contract.kinds import SparkParts
    from spark.runner.application import SinkApplication
    from spark.session.spark_session import SessionSpec


def run_sinks(settings: Settings, names: Sequence[str], *, until_caught_up: bool) -> None:
    """Feed these sinks (all by default) until asked to stop. See :func:`spark.runner.application.run`.

    UsageError for a sink that the settings do not name.
    """
    for name in names:
        sink_settings(name, settings)
    application = build_sinks(settings, list(dict.fromkeys(names)))
    from spark.runner.application import run
    from spark.session.stop import STOP_FILE, SinkStop

    run(application, SinkStop(application.session.log_folder / STOP_FILE), until_caught_up=until_caught_up)


def build_sinks(settings: Settings, names: Sequence[str] = ()) -> SinkApplication:
    """The application for these sinks, all by default. ConfigError when Spark is not installed. LogError, at once, when
    no broker takes a connection."""
    from connectors.debezium.config import may_hold_debezium
    from connectors.kafka.clients import client_config, fetching_config
    from connectors.kafka.dead_letters import DeadLetterTopic
    from connectors.kafka.feed import DeadLetterFeed, ProgressTopic
    from connectors.kafka.record_reader import KafkaReading
    from connectors.kafka.topic_ends import KafkaHeads
    from connectors.views.view_topics import views_feed

    try:
        from spark.runner.application import SinkApplication
        from spark.session.package_zip import build_zip, openers_of
    except ImportError as missing:
        raise ConfigError(
            f"cdc sink needs a package that is not installed: {missing.name}", hint="pip install 'headrace[all]'"
        ) from None
    from sinks.contract.sink_spec import open_sink
    from spark.records.source import KafkaInput

    chosen = list(names) or list(settings.sinks)
    if not chosen:
        raise ConfigError("the settings name no sink", hint="add a [sinks.NAME] section; cdc config example has five")
    require_broker(settings)
    specs = {name: spec_of(name, settings, parallel=kind_of(name, settings).parallel) for name in chosen}
    spark = settings.spark
    objects = ("logger", "oauth_cb", "error_cb")
    client = {name: value for name, value in client_config(settings.log).items() if name not in objects}
    options = java_options(client, spark.kafka)
    session = session_of(settings, chosen).with_java_options(allowed_urls(options))
    application = SinkApplication(
        session=session,
        specs=specs,
        connect=lambda spec: open_sink(spec.renewed()),
        facts=open_sink_log(settings),
        dead=DeadLetterTopic(settings.log, dead_topic(settings.name)),
        open_feed=partial(ProgressTopic, settings.log, progress_topic(settings.name)),
        open_letters=partial(DeadLetterFeed, settings.log, dead_topic(settings.name)),
        kafka=KafkaInput(
            options={f"kafka.{name}": value for name, value in options.items()},
            max_offsets=spark.max_offsets_per_trigger,
            reading=KafkaReading(tuple(sorted(fetching_config(settings.log).items()))),
        ),
        checkpoint=spark.checkpoint,
        driver_rows=spark.driver_batch_rows,
        slice_bytes=spark.slice_bytes,
        stop_together=spark.stop_together,
        http_address=spark.http_address,
        open_heads=partial(KafkaHeads, settings.log),
        open_views=partial(views_feed, settings, chosen),
        view_limit_s=spark.view_limit.total_seconds(),
        package=partial(build_zip, session.log_folder, openers_of(specs.values())),
    )
    return reading_debezium(application, settings) if may_hold_debezium(settings) else application


def open_sink_log(settings: Settings) -> SinkLog:
    """The log as the queries ask about it. Nothing is opened before the first question."""
    from connectors.spark_log.sink_log import SinkLog

    return SinkLog(settings, lambda sink: sink_settings(sink, settings))


def session_of(settings: Settings, stores: Sequence[str], more: Sequence[SparkParts] = ()) -> SessionSpec:
    """Spark's own settings, with the project's jars and Java unless ``spark-submit`` brought others. ``stores``: those
    that the session may have to write itself. ``more``: parts that it needs for something else."""
    from cdc.jvm.jars import spark_jars
    from spark.session.spark_session import SessionSpec, submitted

    spark = settings.spark
    own = not submitted()
    parts = [*parts_of(settings, stores), *more]
    # Beside the checkpoints where those are on this machine.
    folder = Path("checkpoints" if "://" in spark.checkpoint else spark.checkpoint).absolute()
    return SessionSpec(
        name=settings.name,
        master=spark.master,
        driver_memory=spark.driver_memory,
        log_folder=folder,
        jars=spark_jars(*jar_sets(parts)) if own else (),
        java_home=_java_home() if own else None,
        conf=with_parts(parts, spark.conf, folder),
        needs=needed_classes(parts),
        ui=spark.ui,
    )


def _java_home() -> Path | None:
    """The wheel's Java. None, so that the environment's JAVA_HOME counts, where that is not installed."""
    try:
        from cdc.jvm.java import java_home
    except ImportError:
        return None
    return java_home()


@contextmanager
def open_rebuild(settings: Settings, sink: str, *, session: SparkSession | None = None) -> Iterator[Rebuild]:
    """Rebuilds of a sink's store. ``session``: a Spark session to be used in place of one of its own.

    UsageError for a sink that the settings do not name. LogError, at once, when no broker takes a connection. SinkError
    when the store does not answer.
    """
    from connectors.kafka.dead_letters import DeadLetterTopic
    from connectors.kafka.feed import newest_progress
    from sinks.contract.kinds import open_generations, rebuilds_of
    from spark.runner.generation_fill import SparkFilling

    sink_settings(sink, settings)
    require_broker(settings)
    spec = spec_of(sink, settings)
    with closing(open_generations(spec)) as generations:
        ports = RebuildPorts(
            generations=generations,
            filling=SparkFilling(lambda: _application(settings, sink), session),
            letters=DeadLetterTopic(settings.log, dead_topic(settings.name)),
            state=open_state(settings),
            shapes=lambda: _shapes(settings, sink),
            written=partial(newest_progress, settings),
            snapshot=partial(snapshot_ends, settings),
            cut=partial(_cut_histories, settings, sink),
        )
        yield Rebuild(sink, ports, separate=rebuilds_of(spec.kind).apart)


def _application(settings: Settings, sink: str) -> SinkApplication:
    """The application that feeds the sink, with a checkpoint of its own and without a port."""
    checkpoint = f"{settings.spark.checkpoint.rstrip('/')}/_rebuild/{sink}"
    spark = settings.spark.model_copy(update={"checkpoint": checkpoint, "http_address": ""})
    return build_sinks(settings.model_copy(update={"spark": spark}), [sink])


def _cut_histories(settings: Settings, sink: str) -> list[str]:
    """The histories of a sink whose topics have lost records by their age."""
    log = open_sink_log(settings)
    cut = [topic for topic, begins in log.topics(sink).histories.items() if any(begins.values())]
    return sorted({str(shape.table) for shape in log.schemas() if shape.topic in cut})


def _shapes(settings: Settings, sink: str) -> list[TableSchema]:
    """Every version of the shapes of a sink's tables, older ones first."""
    log = open_sink_log(settings)
    topics = log.topics(sink).ids
    versions = [shape for shape in log.schemas() if shape.topic in topics]
    return sorted(versions, key=lambda shape: (shape.topic, shape.version))


def open_letters(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> LettersRun:
    """The dead letters of the pipeline that the settings describe. LogError, at once, when no broker takes a
    connection."""
    from connectors.kafka.dead_letters import DeadLetterTopic
    from connectors.kafka.feed import DeadLetterFeed

    @contextmanager
    def reader(sink: str) -> Iterator[ReadsStore]:
        with closing(open_store(sink, settings)) as store:
            yield store.reader

    require_broker(settings)
    topic = dead_topic(settings.name)
    ports = LetterPorts(
        letters=DeadLetterTopic(settings.log, topic),
        follow=partial(DeadLetterFeed, settings.log, topic),
        shapes=open_sink_log(settings).schemas,
        open_store=reader,
    )
    return LettersRun(ports, clock)


@contextmanager
def open_verification(
    settings: Settings, names: Sequence[str], *, timeout_s: float, watch: VerificationProgress
) -> Iterator[Verification]:
    """The stores beside the source, opened. ``names``: of sinks, and of tables with their schemas. ``timeout_s``: how
    long a store may take to reach a comparison's fence.

    UsageError for a sink that the settings do not name. LogError, at once, when no broker takes a connection.
    ConfigError while the first snapshot is not complete, or where the source cannot be asked. SinkError or SourceError
    when a server does not answer.
    """
    from cdc.verification.ports import VerificationPorts
    from cdc.verification.run import Verification
    from connectors.operate.verify import open_side, sinks_of, verified_store

    require_postgres(settings, "cdc verify")
    sinks, only = sinks_of(settings, names)
    require_broker(settings)
    known = read_known(settings)
    with ExitStack() as opened:
        # As one of several writers: the application that feeds a store goes on while it is repaired.
        stores = {name: opened.enter_context(closing(open_store(name, settings, parallel=True))) for name in sinks}
        side = open_side(settings, known.topics, opened, sinks).of(only)
        verified = {name: verified_store(name, store, settings, side) for name, store in stores.items()}
        ports = VerificationPorts(
            source=side.reader,
            stores=verified,
            tables=side.compared,
            lacking=lambda: side.named({**side.refused, **lacking(open_state(settings).read())}),
            left_out=side.named(side.left_out),
            runners=side.runners,
        )
        yield Verification(known, ports, watch, SYSTEM_CLOCK, timeout_s=timeout_s)


def read_known(settings: Settings) -> KnownPipeline:
    """The pipeline's memory. ConfigError while the first snapshot is not complete."""
    from cdc.verification.run import known_of

    return known_of(open_state(settings).read(), settings.source.kind)


class Freshness(Waits):
    """Waits for stores of the pipeline that the settings describe. A context. One thread at a time."""

    def __init__(self, settings: Settings) -> None:
        from connectors.operate.status import nudge, read_epoch, read_letters, topic_of
        from sinks.contract.attempt_limits import looking

        ports = WaitPorts(
            open=lambda sink: open_store(sink, settings),
            briefly=looking,
            epoch=partial(read_epoch, settings),
            letters=partial(read_letters, settings),
            nudge=partial(nudge, settings),
            require=partial(require_postgres, settings, "cdc wait"),
            place=lambda sink, table: topic_of(settings, sink_settings(sink, settings).tables, table),
        )
        super().__init__(ports, SYSTEM_CLOCK)


def prepare_spark(console: Console) -> None:
    """Once for each environment, half a minute. Silent where it was done, and where there is no Spark.

    See :func:`cdc.jvm.java.prepare`.
    """
    try:
        import pyspark

        from cdc.jvm.jars import spark_jars
        from cdc.jvm.java import archived, java_home, prepare
        from spark.session.session_warmup import train
        from spark.session.spark_session import SessionSpec
    except ImportError:
        return
    jars = Path(pyspark.__file__).parent / "jars"
    if archived(jars):
        return
    with TemporaryDirectory(prefix="headrace-") as folder:
        spec = SessionSpec(
            name="training",
            master="local[2]",
            driver_memory="1g",
            log_folder=Path(folder),
            jars=spark_jars(),
            java_home=java_home(),
        )
        prepare(jars, partial(train, spec), console)
