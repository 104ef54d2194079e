"""``cdc rebuild``, put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cdc.operate.rebuild import Rebuild
from cdc.operate.rebuild_rules import RebuildPorts
from cdc.record.topic_names import dead_topic
from cdc.settings.model import Settings
from cdc.wiring import open_state, require_broker
from cdc.wiring.debezium import snapshot_ends
from cdc.wiring.sinks import build_sinks, open_sink_log
from sinks.contract.stores import sink_settings, spec_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.record.schema import TableSchema
    from spark.runner.application import SinkApplication


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
        )
        yield Rebuild(sink, ports, separate=rebuilds_of(spec.kind).apart)


def _application(settings: Settings, sink: str) -> SinkApplication:
    """The application that feeds the sink, with a checkpoint of its own and without a port."""
    checkpoint = f"{settings.spark.checkpoint.rstrip('/')}/_rebuild/{sink}"
    spark = settings.spark.model_copy(update={"checkpoint": checkpoint, "http_address": "", "fan_out": False})
    return build_sinks(settings.model_copy(update={"spark": spark}), [sink])


def _shapes(settings: Settings, sink: str) -> list[TableSchema]:
    """Every version of the shapes of a sink's tables, older ones first."""
    log = open_sink_log(settings)
    topics = log.topics(sink).ids
    versions = [shape for shape in log.schemas() if shape.topic in topics]
    return sorted(versions, key=lambda shape: (shape.topic, shape.version))
