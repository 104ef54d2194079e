"""The facts that ``cdc diff`` compares the settings with, asked of all parts: :class:`cdc.operate.diff.MadeFacts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial

from cdc.freshness.bounded_ports import OpenedStore
from cdc.operate.diff import Followed, MadeFacts, ViewTexts
from cdc.process.errors import CdcError
from cdc.record.ports import Found, Unknown, look
from cdc.record.progress import Watermark
from cdc.record.state import SlotState, TopicsState
from cdc.settings.model import Settings, is_postgres
from connectors.connect.connector import Connector
from connectors.debezium.client import MissingConnector
from connectors.debezium.source_progress import snapshot_state
from connectors.operate.check import ServerProbes
from connectors.reading.sink_log import NoTables, SinkLog
from connectors.views.view_planning import newest_shapes, plan_view
from connectors.views.view_topics import known_views, unfed_views


def ask_made(
    settings: Settings,
    probes: ServerProbes,
    open_store: Callable[[str], OpenedStore],
    patterns: Callable[[str], Sequence[str]],
) -> MadeFacts:
    """Ask each part once. One that does not answer is Unknown. ``patterns``: of a sink, its ``tables``."""
    documents = look(probes.state)
    topics: Found[TopicsState] = documents if isinstance(documents, Unknown) else TopicsState.find(documents)
    slot: Found[SlotState] = documents if isinstance(documents, Unknown) else SlotState.find(documents)
    source = look(probes.source) if is_postgres(settings) else None
    tables = [] if source is None or isinstance(source, Unknown) else [table.topic for table in source.tables]
    known = None if isinstance(topics, Unknown) else topics
    log = topics if isinstance(topics, Unknown) else look(lambda: probes.log(tables, known))
    stores, views = {}, None
    if known is not None:
        asked = SinkLog(settings, patterns)
        stores = {name: followed(partial(_topics, asked, name), partial(open_store, name)) for name in settings.sinks}
        views = look(lambda: _views(settings))
    connector: Found[str] = look(lambda: _connector(settings)) if settings.source.kind == "debezium" else ""
    return MadeFacts(source=source, topics=topics, slot=slot, log=log, connector=connector, stores=stores, views=views)


def _connector(settings: Settings) -> str:
    try:
        return snapshot_state(Connector(settings).offsets())
    except MissingConnector:
        return "missing"


def _topics(log: SinkLog, name: str) -> Iterable[str]:
    return log.topics(name).ids


def followed(topics: Callable[[], Iterable[str]], open_store: Callable[[], OpenedStore]) -> Followed:
    """A store, and the topics that its settings take. Neither is taken for none because it cannot be told."""
    try:
        wanted = frozenset(topics())
    except NoTables:
        wanted = frozenset()
    except CdcError as failure:
        return Followed(watermark=Unknown(failure), wanted=frozenset())

    def watermark() -> Watermark | None:
        with closing(open_store()) as store:
            return store.watermarks.read()

    return Followed(watermark=look(watermark), wanted=wanted)


def _views(settings: Settings) -> ViewTexts:
    known = known_views(settings).known
    shapes = newest_shapes(settings) if settings.views else []
    both = settings.views.keys() & known.keys()
    changed = {name for name in both if plan_view(settings, name, shapes).digest != known[name].digest}
    return ViewTexts(published=frozenset(known), changed=frozenset(changed), unfed=unfed_views(settings))
