"""The parts of a runner of a view over Delta tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.topic import TableName
from cdc.views.fences import BEFORE_ALL, Fence
from cdc.views.state_reach import Bound
from cdc.views.view_ports import ViewInput, ViewOutput
from cdc.wire.records import ReaderOpener
from spark.views.delta_tables import DeltaTables
from spark.views.view_batches import ViewBatches
from spark.views.view_parts import ShippedView


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketKeeperParts:
    """The parts of a runner. ``bound``: the plan that its state is of. ``opener``: how executors read the log.
    ``view``, ``topic``, ``partitions``, ``name``, ``database``: as :class:`cdc.views.view_records.ViewRecords` has
    them. ``topic_id``: Kafka's, of the view's topic. ``topics``: of the tables that the view uses. ``above``: as
    :class:`cdc.views.keeper.KeeperParts` has it."""

    shipped: ShippedView
    bound: Bound
    generation: int
    tables: DeltaTables
    batches: ViewBatches
    input: ViewInput
    opener: ReaderOpener
    output: ViewOutput
    topics: Mapping[TableName, str]
    view: str
    topic: str
    topic_id: str
    partitions: int
    name: str
    database: str
    above: Fence = BEFORE_ALL
