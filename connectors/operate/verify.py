"""Both sides of a verification: the source's reader with the captured tables in their two shapes, the stores, and the
views that they keep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from cdc.capture.table_masks import masks_of
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import CdcError, ConfigError, SinkError, UsageError
from cdc.process.untrusted_text import quoted
from cdc.record.schema import TableSchema
from cdc.record.state import TopicsState
from cdc.record.topic_names import VIEW_SCHEMA, TableName, schema_topic
from cdc.settings.model import Settings
from cdc.verification.ports import AsksRunners, VerifiedSource, VerifiedStore, VerifiedTable
from cdc.views.syntax import NotComputable
from cdc.wire.format import DELETE_OP, READ_OP, bare_row
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.server.catalog_shapes import captured_schema, resolve_tables
from connectors.postgres.server.connections import connect
from connectors.postgres.server.cut_reader import SourceCut
from connectors.postgres.server.table_selection import Pattern, keeps_some, kept
from connectors.views.view_planning import PlannedView, newest_shapes, plan_view
from connectors.views.view_recomputing import KafkaRunners
from connectors.views.view_topics import known_views, taken_views, view_patterns
from sinks.contract.batch import Event, events_of
from sinks.contract.port import OpenSink
from sinks.contract.stores import kind_of, sink_settings
from sinks.contract.table_places import SchemaBook

_APPLICATION = "cdc verify"
_LEFT_OUT = "its mask leaves it out, so whether a store still has it from before is not known"


def open_cut(settings: Settings) -> SourceCut:
    """The source's reader, on two sessions of its own."""
    return SourceCut(
        lambda autocommit: connect(settings.source, application_name=_APPLICATION, autocommit=autocommit),
        settings.publication,
        SYSTEM_CLOCK,
        masks=masks_of(settings),
    )


def verified_tables(
    settings: Settings,
    topics: TopicsState,
    source: SourceCut,
    *,
    missing: Callable[[ConfigError], None] | None = None,
    unkept: dict[str, str] | None = None,
) -> Mapping[TableName, VerifiedTable]:
    """The captured tables by name, each in its shape now and in the one the log knows.

    ConfigError when an entry of the settings meets no table. With ``missing`` it is added to that list, and all others
    are found. The same holds of ``unkept``, and of a table whose masks cannot be kept: its name gets the
    sentence about it.
    """
    schemas = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
    tables: dict[TableName, VerifiedTable] = {}
    with closing(connect(settings.source, application_name=_APPLICATION, autocommit=True)) as connection:
        for table in resolve_tables(connection, settings, missing):
            if str(table.table) not in topics.tables:
                continue
            try:
                shape = captured_schema(connection, settings, table.oid, topic=table.topic, encoding="readable")
            except ConfigError as refusal:
                if unkept is None:
                    raise
                unkept[str(table.table)] = refusal.message
                continue
            tables[table.table] = VerifiedTable(
                shape=shape,
                stored=schemas.latest(table.table) or shape,
                rows=source.estimate(table.oid),
                left_out={one.name: _LEFT_OUT for one in shape.dropped},
                partitioned=table.partitioned,
            )
    return tables


def masked_otherwise(tables: Mapping[TableName, VerifiedTable]) -> dict[str, str]:
    """Tables that capture masks otherwise than these settings and this key do, each with the sentence about it: their
    rows would all differ, and a repair would write others beside those of capture."""
    found = {}
    for table, one in tables.items():
        here = {name: rule for name, rule in one.shape.noted_masks.items() if name in one.stored.numbers}
        there = one.stored.noted_masks
        columns = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
        if columns:
            found[str(table)] = f"capture has other masks, or another key, for {', '.join(columns)} than these settings"
    return found


def gone_tables(settings: Settings, topics: TopicsState, found: Collection[TableName]) -> Mapping[str, str]:
    """Captured tables that the settings list by name, and that the source has no more, with the sentence about it."""
    here = {str(table) for table in found}
    listed = [pattern for pattern in map(Pattern.parse, settings.source.tables) if not pattern.wild]
    gone = (table for table in topics.tables if table not in here and any(one.names(table) for one in listed))
    return {table: f"{table} is not in the source any more" for table in sorted(gone)}


@dataclass(frozen=True, slots=True)
class VerifiedViews:
    """Views to compare. ``topics``: of each. ``refused``: those that cannot be compared now, each with why.
    ``left_out``: the same of those that never can be."""

    tables: Mapping[TableName, VerifiedTable] = field(default_factory=dict)
    topics: Mapping[TableName, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def verified_views(settings: Settings, sinks: Sequence[str], estimate: Callable[[int], int]) -> VerifiedViews:
    """The views that these sinks take, each with its text. ``estimate``: about how many rows a table has, by oid."""
    patterns = [text for sink in sinks for text in view_patterns(sink_settings(sink, settings).tables)]
    if not patterns:
        return VerifiedViews()
    views = known_views(settings)
    taken = taken_views(views, patterns)
    named = [TableName(VIEW_SCHEMA, name) for name in settings.views]
    taking = [Pattern.parse(text) for text in patterns]
    unknown = [table for table in named if table not in taken and any(one.takes(table) for one in taking)]
    refused = {str(table): "it is not published yet: cdc view run publishes it" for table in unknown}
    tables, left_out = {}, {}
    shapes = newest_shapes(settings)
    for table, known in taken.items():
        try:
            planned = plan_view(settings, table.table, shapes)
        except CdcError as refusal:
            refused[str(table)] = refusal.message
            continue
        if difference := planned.other_than(known, views.identities.get(table.table)):
            refused[str(table)] = f"it {difference}"
            continue
        masked = [s.table for s in planned.shapes if s.noted_masks and s.table in planned.plan.relations]
        if masked:
            left_out[str(table)] = f"{masked[0]} has masks, and its SELECT over the source gives plain values"
            continue
        root = next(shape.oid for shape in planned.shapes if shape.table == planned.plan.root.table)
        tables[table] = VerifiedTable(
            shape=known.schema,
            stored=known.schema,
            rows=estimate(root),
            partitioned=True,
            query=planned.plan.sql,
            search_path=tuple(planned.settings.search_path),
            finish=_finish(planned) if planned.post is not None else None,
        )
    return VerifiedViews(tables, {table: view.topic for table, view in taken.items()}, refused, left_out)


def _finish(view: PlannedView) -> Callable[[bytes], bytes]:
    post = view.post
    assert post is not None

    def finished(after: bytes) -> bytes:
        try:
            return post(after.decode()).encode()
        except NotComputable as failure:
            hint = "its runner parks such a document by its key: see the event document_parked"
            raise ConfigError(f"the view {view.name} cannot be compared: {quoted(failure)}", hint=hint) from None

    return finished


def sinks_of(settings: Settings, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The sinks and tables that a command line names: a table has its schema. All sinks unless some are named,
    or those that take one of the tables. UsageError for a sink that the settings do not name."""
    tables = [name for name in names if "." in name]
    sinks = [name for name in names if "." not in name]
    for sink in sinks:
        sink_settings(sink, settings)
    if sinks or not tables:
        return sinks or list(settings.sinks), tables
    taking = [sink for sink, section in settings.sinks.items() if _takes(section.tables, tables)]
    if not taking:
        raise UsageError(f"no sink takes {tables[0]}", hint="[sinks.NAME] tables says which ones a sink takes")
    return taking, tables


def _takes(patterns: Sequence[str], tables: Sequence[str]) -> bool:
    views = [Pattern.parse(text) for text in view_patterns(patterns)]
    named = [table for table in tables if table.startswith(f"{VIEW_SCHEMA}.")]
    return any(one.names(table) for one in views for table in named) or keeps_some(
        patterns, [table for table in tables if table not in named]
    )


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """The source's side. ``refused``: tables and views that cannot be compared, each with why. ``only``: names of those
    that are compared, empty for all. ``runners``: as :class:`cdc.verification.ports.VerificationPorts` has them."""

    reader: VerifiedSource
    tables: Mapping[TableName, VerifiedTable]
    refused: Mapping[str, str]
    views: VerifiedViews = VerifiedViews()
    only: Sequence[str] = ()
    runners: AsksRunners | None = None

    @property
    def left_out(self) -> Mapping[str, str]:
        """Those that never can be compared."""
        return self.views.left_out

    @property
    def compared(self) -> dict[TableName, VerifiedTable]:
        """Tables and views."""
        every = {**self.tables, **self.views.tables}
        return {table: one for table, one in every.items() if not self.only or str(table) in self.only}

    def of(self, names: Sequence[str]) -> ComparedSide:
        """These alone, all without any. UsageError for one that nothing is known of."""
        every = {*map(str, self.tables), *map(str, self.views.tables), *self.refused, *self.left_out}
        for name in names:
            if name not in every:
                known = ", ".join(sorted(every)) or "none yet"
                raise UsageError(f"there is no table or view {name} to compare", hint=f"there are {known}")
        return replace(self, only=tuple(names))

    def named(self, found: Mapping[str, str]) -> dict[str, str]:
        """Name the stores that are to be compared."""
        return {table: why for table, why in found.items() if not self.only or table in self.only}


def open_side(settings: Settings, topics: TopicsState, opened: ExitStack, sinks: Sequence[str]) -> ComparedSide:
    """The source with its tables, and the views that these sinks take. ``opened`` closes it. SourceError or ConfigError
    when it cannot be asked."""
    source = opened.enter_context(closing(open_cut(settings)))
    unkept: dict[str, str] = {}
    tables = verified_tables(settings, topics, source, missing=lambda _: None, unkept=unkept)
    views = verified_views(settings, sinks, source.estimate)
    other = masked_otherwise(tables)
    refused = {**gone_tables(settings, topics, tables), **unkept, **other}
    tables = {table: one for table, one in tables.items() if str(table) not in other}
    runners = KafkaRunners(settings, source.fence, SYSTEM_CLOCK)
    return ComparedSide(source, tables, {**refused, **views.refused}, views=views, runners=runners)


def verified_store(name: str, store: OpenSink, settings: Settings, side: ComparedSide) -> VerifiedStore:
    """A store, opened, with those of the compared tables and views that its sink keeps."""
    patterns = sink_settings(name, settings).tables
    own = [Pattern.parse(text) for text in view_patterns(patterns)]
    views = [table for table in side.compared if table in side.views.tables and any(one.takes(table) for one in own)]
    return VerifiedStore(
        reader=store.reader,
        watermarks=store.watermarks,
        target=StoreRepair(store),
        tables=[*kept(sorted(side.compared.keys() & side.tables.keys()), patterns), *views],
        fills_lost_tables=kind_of(name, settings).fills_lost_tables,
        views={table: side.views.topics[table] for table in views},
    )


declare("mend_applied", "mend_removed")


class RepairedRow(Protocol):
    """A record's key as JSON, and the row as on the wire. None for a delete."""

    @property
    def key(self) -> bytes:
        """The record's key as JSON."""

    @property
    def after(self) -> bytes | None:
        """The row as on the wire. None for a delete."""


class StoreRepair:
    """:class:`cdc.verification.repair.RepairTarget` over a store, which has to be opened as one of several writers."""

    def __init__(self, opened: OpenSink) -> None:
        self._sink = opened.sink
        self._discards = opened.discards

    def put(self, shape: TableSchema, pos: str, rows: Sequence[RepairedRow]) -> Sequence[str]:
        events = [
            Event(
                topic=shape.topic,
                partition=0,
                offset=number,
                key=row.key,
                value=None if row.after is None else bare_row(row.after),
                pos=pos,
                op=DELETE_OP if row.after is None else READ_OP,
                ver=shape.version,
            )
            for number, row in enumerate(rows)
        ]
        done = self._sink.apply(events_of(events), SchemaBook([shape]))
        crash_point("mend_applied")
        self._sink.show()
        return [one.reason for one in done.refused]

    def remove(self, shape: TableSchema, versions: Mapping[str, str]) -> None:
        if self._discards is None:
            raise SinkError("this store cannot take a version away", hint="cdc rebuild fills it anew")
        self._discards.remove(shape, versions)
        crash_point("mend_removed")
