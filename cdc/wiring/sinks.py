"""What ``cdc sink`` runs: the stores' specs, the log as the queries see it, and Spark's own settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cdc.errors import ConfigError, TopicError
from cdc.javaclient import java_options
from cdc.progress import Offsets
from cdc.state import TopicsState
from cdc.topic import TableName, dead_topic, progress_topic
from cdc.wiring import open_schemas, open_state, require_broker
from cdc.wiring.debezium import reading_debezium
from cdc.wiring.stores import kind_of, sink_settings, spec_of, tables_of

if TYPE_CHECKING:
    from cdc.schema import TableSchema
    from cdc.settings import Settings
    from connectors.kafka.admin import TopicAdmin
    from spark.app import SinkApplication
    from spark.ports import Topics
    from spark.session import SessionSpec


_DAY_MS = 86_400_000
"""Kafka's own delete.retention.ms."""


class SinkLog:
    """:class:`spark.ports.LogFacts` of one pipeline; one client, kept. Any thread, one at a time per method."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kept: TopicAdmin | None = None

    def topics(self, sink: str) -> Topics:
        from connectors.connect.topics import with_patterns
        from connectors.debezium.config import may_hold_debezium
        from connectors.kafka.admin import raise_first, state_problems
        from spark.ports import Topics

        state = TopicsState.find(open_state(self._settings).read())
        if state is None:
            maker = "cdc connect deploy" if self._settings.source.kind == "debezium" else "cdc init"
            raise TopicError("the pipeline has no topics yet", hint=f"{maker} makes them")
        state = with_patterns(self._settings, state, self._admin())
        captured = set(state.tables.values())
        known = {shape.table: shape.topic for shape in self.schemas() if shape.topic in captured}
        if may_hold_debezium(self._settings):
            # Their shapes come with their records: a table may have none yet.
            known |= {TableName(*table.rsplit(".", 1)): topic for table, topic in state.tables.items()}
        wanted = {known[table] for table in tables_of(sink, self._settings, list(known))}
        if not wanted:
            raise ConfigError(f"[sinks.{sink}] tables: none of the captured tables is among them")
        facts = self._admin().describe(wanted)
        own = TopicsState(
            cluster_id=state.cluster_id, topics={topic: state.topics[topic] for topic in sorted(wanted)}, tables={}
        )
        raise_first(state_problems(own, facts, self._admin().cluster_id()))
        lag_ms = min(int(facts[topic].config.get("min.compaction.lag.ms", 0)) for topic in wanted)
        return Topics(
            ids={topic: facts[topic].topic_id for topic in sorted(wanted)},
            partitions={topic: state.topics[topic]["partitions"] for topic in sorted(wanted)},
            compaction_lag_s=lag_ms / 1000,
            retention_s=min(int(facts[topic].config.get("delete.retention.ms", _DAY_MS)) for topic in wanted) / 1000,
        )

    def ends(self, topics: Topics) -> Offsets:
        return self._admin().end_offsets(topics.partitions)

    def begun_behind(self, epoch: int) -> Offsets:
        if self._settings.source.kind != "debezium":
            return {}
        from connectors.connect.epochs import read_epochs

        return read_epochs(self._settings).behind(epoch)

    def schemas(self) -> list[TableSchema]:
        return open_schemas(self._settings).versions()

    def _admin(self) -> TopicAdmin:
        from connectors.kafka.admin import TopicAdmin

        if self._kept is None:
            require_broker(self._settings)
            self._kept = TopicAdmin(self._settings.log)
        return self._kept


def run_sinks(settings: Settings, names: Sequence[str], *, until_caught_up: bool) -> None:
    """Feed these sinks (all by default) until asked to stop; see :func:`spark.app.run`.

    UsageError for a sink that the settings do not name.
    """
    for name in names:
        sink_settings(name, settings)
    application = build_sinks(settings, list(dict.fromkeys(names)))
    from spark.app import run
    from spark.stop import STOP_FILE, Stop

    run(application, Stop(application.session.log_folder / STOP_FILE), until_caught_up=until_caught_up)


def build_sinks(settings: Settings, names: Sequence[str] = ()) -> SinkApplication:
    """The application for these sinks, all by default. ConfigError when Spark is not installed; LogError, at once, when
    no broker takes a connection."""
    from connectors.debezium.config import may_hold_debezium
    from connectors.kafka.clients import client_config, fetching_config
    from connectors.kafka.feed import DeadLetterFeed, ProgressTopic
    from connectors.kafka.letters import DeadLetterTopic
    from connectors.kafka.records import KafkaReading

    try:
        from spark.app import SinkApplication
        from spark.package import build_zip, openers_of
    except ImportError as missing:
        raise ConfigError(
            f"cdc sink needs a package that is not installed: {missing.name}", hint="pip install 'headrace[all]'"
        ) from None
    from sinks.registry import open_sink
    from spark.source import KafkaInput

    chosen = list(names) or list(settings.sinks)
    if not chosen:
        raise ConfigError("the settings name no sink", hint="add a [sinks.NAME] section; cdc config example has four")
    require_broker(settings)
    specs = {name: spec_of(name, settings, parallel=kind_of(name, settings).parallel) for name in chosen}
    spark = settings.spark
    session = session_of(settings)
    client = {name: value for name, value in client_config(settings.log).items() if name != "logger"}
    application = SinkApplication(
        session=session,
        specs=specs,
        connect=open_sink,
        facts=SinkLog(settings),
        dead=DeadLetterTopic(settings.log, dead_topic(settings.name)),
        open_feed=partial(ProgressTopic, settings.log, progress_topic(settings.name)),
        open_letters=partial(DeadLetterFeed, settings.log, dead_topic(settings.name)),
        kafka=KafkaInput(
            options={f"kafka.{name}": value for name, value in java_options(client).items()},
            max_offsets=spark.max_offsets_per_trigger,
            reading=KafkaReading(tuple(sorted(fetching_config(settings.log).items()))),
        ),
        checkpoint=spark.checkpoint,
        driver_rows=spark.driver_batch_rows,
        slice_bytes=spark.slice_bytes,
        stop_together=spark.stop_together,
        fan_out=spark.fan_out,
        http_address=spark.http_address,
        package=None if session.local else partial(build_zip, session.log_folder, openers_of(specs.values())),
    )
    return reading_debezium(application, settings) if may_hold_debezium(settings) else application


def session_of(settings: Settings) -> SessionSpec:
    """Spark's own settings, with the project's jars and Java unless ``spark-submit`` brought others."""
    from spark.session import SessionSpec, submitted

    spark = settings.spark
    own = not submitted()
    return SessionSpec(
        name=settings.name,
        master=spark.master,
        driver_memory=spark.driver_memory,
        log_folder=_log_folder(spark.checkpoint),
        jars=_jars() if own else (),
        java_home=_java_home() if own else None,
        conf=spark.conf,
    )


def _log_folder(checkpoint: str) -> Path:
    """Beside the checkpoints where those are on this machine."""
    return Path("checkpoints").absolute() if "://" in checkpoint else Path(checkpoint).absolute()


def _jars() -> tuple[Path, ...]:
    from cdc.jvm.jars import class_path

    return tuple(sorted(class_path("spark-kafka").glob("*.jar")))


def _java_home() -> Path | None:
    """The wheel's Java; None, so that the environment's JAVA_HOME counts, where that is not installed."""
    try:
        from cdc.jvm.java import java_home
    except ImportError:
        return None
    return java_home()
