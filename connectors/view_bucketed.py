"""A view whose state is Delta tables that executors keep: its session of Spark, and its runner.

It loads Spark's client, so it is imported where a view has such a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.clock import SYSTEM_CLOCK
from cdc.settings import Settings
from cdc.topic import TableName
from cdc.views.fences import BEFORE_ALL, NEVER
from cdc.views.known_views import KnownView
from cdc.views.silent_output import SilentOutput
from cdc.views.state_reach import Bound
from cdc.views.view_manifest import ViewManifest
from cdc.views.view_ports import ViewOutput
from connectors.kafka.clients import fetching_config
from connectors.kafka.record_reader import KafkaReading
from connectors.view_ending import fence_above_earlier
from connectors.view_log import KafkaViewInput, KafkaViewOutput
from spark.package import build_zip
from spark.spark_session import SessionSpec, end_session, start_session
from spark.views.bucket_files import DOCUMENTS
from spark.views.bucket_keeper import BucketKeeper
from spark.views.delta_tables import DeltaTables
from spark.views.keeper_parts import BucketKeeperParts
from spark.views.spark_exchange import SparkExchange
from spark.views.view_batches import STATE_TABLES, ViewBatches
from spark.views.view_parts import ShippedView


@contextmanager
def opened_session(spec: SessionSpec) -> Iterator[SparkSession]:
    """A Spark session whose executors have our packages. ConfigError where Spark does not start."""
    session = start_session(spec)
    try:
        if not spec.local:
            session.sparkContext.addPyFile(str(build_zip(spec.log_folder)))
        yield session
    finally:
        end_session(session)


@contextmanager
def opened_bucket_keeper(
    settings: Settings,
    shipped: ShippedView,
    known: KnownView,
    session: SparkSession,
    about: tuple[Mapping[TableName, str], tuple[float, float], str],
    *,
    builds: bool = False,
) -> Iterator[BucketKeeper]:
    """The runner of a view, begun. The block ends what it has opened.

    ``about``: the topics of the tables that it uses; for how long the cleaner leaves a record alone, and topics keep
    deletions; and the source's database. ``builds``: it only builds its state, and publishes nothing.
    """
    topics, times_s, database = about
    parts = shipped.parts()
    forms = [*(form.entries for form in parts.forms.values()), *STATE_TABLES, DOCUMENTS]
    tables = DeltaTables(Path(shipped.root), forms, SYSTEM_CLOCK)
    output: ViewOutput = (
        SilentOutput()
        if builds
        else KafkaViewOutput(settings, known.view, known.generation, known.topic, known.partitions)
    )
    found = tables.document()
    published = ViewManifest.from_json(found).reached.published if found is not None else BEFORE_ALL
    above = NEVER if builds else fence_above_earlier(settings, known, published, output)
    with closing(KafkaViewInput(settings, *times_s)) as source:
        keeper = BucketKeeper(
            BucketKeeperParts(
                shipped=shipped,
                bound=Bound.to(parts.plan),
                generation=known.generation,
                tables=tables,
                batches=ViewBatches(shipped, SparkExchange(session, known.view)),
                input=source,
                opener=KafkaReading(tuple(sorted(fetching_config(settings.log).items()))),
                output=output,
                topics=topics,
                view=known.view,
                topic=known.topic,
                topic_id=known.topic_id,
                partitions=known.partitions,
                name=settings.name,
                database=database,
                above=above,
            ),
            clock=SYSTEM_CLOCK,
            largest=int(settings.views[known.view].largest),
        )
        keeper.begin()
        yield keeper
