"""The application of ``cdc sink``: the stores' specs, the log as the queries see it, and Spark's own settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.process.errors import ConfigError
from cdc.record.topic_names import dead_topic, progress_topic
from cdc.settings.client_options import allowed_urls, java_options
from cdc.wiring import require_broker
from cdc.wiring.debezium import reading_debezium
from sinks.contract.spark_parts import jar_sets, needed_classes, parts_of, with_parts
from sinks.contract.stores import kind_of, sink_settings, spec_of

if TYPE_CHECKING:
    from cdc.settings.model import Settings
    from connectors.reading.sink_log import SinkLog
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
    from connectors.debezium.connector_config import may_hold_debezium
    from connectors.kafka.clients import client_config, fetching_config
    from connectors.kafka.dead_letters import DeadLetterTopic
    from connectors.kafka.feed import DeadLetterFeed, ProgressTopic
    from connectors.kafka.record_reader import KafkaReading
    from connectors.kafka.topic_ends import KafkaHeads
    from connectors.views.view_topics import views_feed

    try:
        from spark.runner.application import SinkApplication
        from spark.session.package import build_zip, openers_of
    except ImportError as missing:
        raise ConfigError(
            f"cdc sink needs a package that is not installed: {missing.name}", hint="pip install 'headrace[all]'"
        ) from None
    from sinks.contract.registry import open_sink
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
            carried=spark.reader == "spark",
            reading=KafkaReading(tuple(sorted(fetching_config(settings.log).items()))),
        ),
        checkpoint=spark.checkpoint,
        driver_rows=spark.driver_batch_rows,
        slice_bytes=spark.slice_bytes,
        stop_together=spark.stop_together,
        fan_out=spark.fan_out,
        http_address=spark.http_address,
        open_heads=partial(KafkaHeads, settings.log),
        open_views=partial(views_feed, settings, chosen),
        view_limit_s=spark.view_limit.total_seconds(),
        package=partial(build_zip, session.log_folder, openers_of(specs.values())),
    )
    return reading_debezium(application, settings) if may_hold_debezium(settings) else application


def open_sink_log(settings: Settings) -> SinkLog:
    """The log as the queries ask about it. Nothing is opened before the first question."""
    from connectors.reading.sink_log import SinkLog

    return SinkLog(settings, lambda sink: sink_settings(sink, settings).tables)


def session_of(settings: Settings, stores: Sequence[str]) -> SessionSpec:
    """Spark's own settings, with the project's jars and Java unless ``spark-submit`` brought others. ``stores``: those
    that the session may have to write itself."""
    from cdc.jvm.jars import spark_jars
    from spark.session.spark_session import SessionSpec, submitted

    spark = settings.spark
    own = not submitted()
    parts = parts_of(settings, stores)
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
