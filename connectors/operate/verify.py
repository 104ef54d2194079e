"""Both sides of a verification: the source's reader, the stores, and the views that they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import CdcError, ConfigError, UsageError
from cdc.process.untrusted_text import quoted
from cdc.record.state import TopicsState
from cdc.record.topic_names import VIEW_SCHEMA, TableName
from cdc.settings.model import Settings
from cdc.verification.cut_port import VerifiedTable
from cdc.verification.ports import AsksRunners, VerifiedSource, VerifiedStore
from cdc.views.known_views import KnownView
from cdc.views.syntax import NotComputable
from connectors.operate.source_cut import gone_tables, masked_otherwise, open_cut, verified_tables
from connectors.postgres.server.table_selection import Pattern, keeps_some, kept
from connectors.views.view_planning import PlannedView, newest_shapes, plan_view
from connectors.views.view_recomputing import KafkaRunners
from connectors.views.view_topics import known_views, taken_views, view_patterns
from sinks.contract.port import OpenSink
from sinks.contract.repair_rows import StoreRepair
from sinks.contract.stores import kind_of, sink_settings


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
        tables[table] = _verified(known, planned, estimate(root))
    return VerifiedViews(tables, {table: view.topic for table, view in taken.items()}, refused, left_out)


def _verified(known: KnownView, view: PlannedView, rows: int) -> VerifiedTable:
    return VerifiedTable(
        shape=known.schema,
        stored=known.schema,
        rows=rows,
        partitioned=True,
        query=view.plan.sql,
        search_path=tuple(view.settings.search_path),
        finish=_finish(view) if view.post is not None else None,
    )


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
