"""``cdc diff``: the settings beside what was made and what the stores follow. Pure.

A part that did not answer is not compared, and no difference is told of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cdc.capture.topic_specs import topic_problems
from cdc.checks.findings import unfed_view
from cdc.record.ports import Found, Unknown
from cdc.record.progress import Watermark
from cdc.record.server_facts import LogFacts, SourceFacts
from cdc.record.state import SlotState, TopicsState
from cdc.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Difference:
    """``what``: one sentence. ``cure``: the command or statement that ends it. Empty where it is only to be known."""

    part: str
    what: str
    cure: str = ""

    def document(self) -> dict[str, str]:
        """As ``--json`` prints it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """One store. ``watermark``: None where it shows nothing yet. ``wanted``: the topics that its settings take now."""

    watermark: Found[Watermark]
    wanted: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewTexts:
    """``changed``: views of the settings that were published from another text. ``published``: all that were.
    ``unfed``: views of the settings that no sink takes. ``streams``: all that were published."""

    published: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    unfed: Sequence[str] = ()
    streams: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFacts:
    """All that was read. ``topics``, ``slot``: the notes of ``cdc init`` and ``cdc snapshot``, None before those.
    ``source``: None where it is no Postgres. ``connector``: of Debezium, its first snapshot, ``none``, ``running`` or
    ``complete``, or that it is ``missing``. Empty for the native capture. ``stores``: by the names of the sinks."""

    source: Found[SourceFacts]
    topics: Found[TopicsState]
    slot: Found[SlotState]
    log: Found[LogFacts]
    connector: Found[str] = ""
    stores: Mapping[str, Followed] = field(default_factory=dict)
    views: Found[ViewTexts] = None


def differences(settings: Settings, made: MadeFacts) -> list[Difference]:
    """All of them, in the order of the data: publication, topics, stores, views."""
    return [*_published(settings, made), *_topics(settings, made), *_stores(settings, made), *_views(settings, made)]


def silent(made: MadeFacts) -> dict[str, Unknown]:
    """The parts that were not compared, and why."""
    parts: dict[str, Any] = {"postgres": made.source, "kafka": made.topics, "log": made.log, "views": made.views}
    parts |= {"connect": made.connector}
    parts |= {name: store.watermark for name, store in made.stores.items()}
    found = {name: part for name, part in parts.items() if isinstance(part, Unknown)}
    # One cause, told once.
    if "kafka" in found:
        found = {name: one for name, one in found.items() if name not in ("log", "views")}
    return found


def _published(settings: Settings, made: MadeFacts) -> Iterator[Difference]:
    source = made.source
    if source is None or isinstance(source, Unknown):
        return
    maker = _maker(settings)
    wanted = {table.table for table in source.tables}
    publication = source.publication
    if publication is None:
        yield Difference("publication", f"there is no publication {settings.publication} yet", maker)
        return
    for table in sorted(wanted - publication.tables):
        yield Difference("publication", f"{table} is captured by the settings, and not published", maker)
    for table in sorted(publication.tables - wanted):
        yield Difference(
            "publication",
            f"{table} is published, and the settings do not capture it",
            f"alter publication {settings.publication} drop table only {table}",
        )


def _maker(settings: Settings) -> str:
    return "cdc connect deploy" if settings.source.kind == "debezium" else "cdc init"


def _topics(settings: Settings, made: MadeFacts) -> Iterator[Difference]:
    topics, log = made.topics, made.log
    if isinstance(topics, Unknown):
        return
    if topics is None:
        yield Difference("topics", "the pipeline's topics are not made yet", _maker(settings))
        return
    source = made.source if made.source is not None and not isinstance(made.source, Unknown) else None
    meant = {str(table.table): table.topic for table in source.tables} if source is not None else {}
    if topics.encoding != settings.log.encoding:
        yield Difference(
            "topics",
            f"[log] encoding is {settings.log.encoding}, and the topics hold {topics.encoding}",
            f'encoding = "{topics.encoding}": a topic keeps its encoding',
        )
    if log is not None and not isinstance(log, Unknown):
        yield from (Difference("topics", fault.message, fault.fix) for fault in log.faults)
        moved = {topic for table, topic in meant.items() if topics.tables.get(table, topic) != topic}
        missing = [one for one in log.missing if one not in moved]
        yield from (Difference("topics", f"the topic {one} is not made yet", _maker(settings)) for one in missing)
    yield from (Difference("topics", *problem) for problem in topic_problems(topics, meant))
    if source is not None:
        for table in sorted(topics.tables.keys() - meant.keys()):
            # A fact, and no advice: its rows may be wanted where they are.
            yield Difference("topics", f"{table} is not captured any more: its topic and its rows in stores stay")
    yield from _snapshot(settings, made)


def _snapshot(settings: Settings, made: MadeFacts) -> Iterator[Difference]:
    if settings.source.kind != "debezium":
        if made.slot is None:
            yield Difference("snapshot", "there is no first snapshot yet", "cdc snapshot")
    elif made.connector == "missing":
        yield Difference("snapshot", "the connector is not deployed yet", "cdc connect deploy")
    elif made.connector in ("none", "running"):
        said = "the connector has stored no offset behind its first snapshot yet"
        yield Difference("snapshot", said, "cdc connect status")


def _stores(settings: Settings, made: MadeFacts) -> Iterator[Difference]:
    if made.topics is None or isinstance(made.topics, Unknown):
        return
    tables = {topic: table for table, topic in made.topics.tables.items()}
    tables |= {history: f"the history of {tables[topic]}" for topic, history in made.topics.histories.items()}
    for name, store in made.stores.items():
        mark = store.watermark
        if isinstance(mark, Unknown):
            continue
        if mark is None:
            yield Difference(name, f"the store of {name} shows nothing yet", f"cdc sink {name}")
            continue
        followed = mark.offsets.keys()
        for topic in sorted(store.wanted - followed):
            yield Difference(
                name, f"{name} does not follow {tables.get(topic, topic)} yet", f"start cdc sink {name} anew"
            )
        # A topic that is no table's any more is left out: its table has another one, and is told of there.
        for topic in sorted((followed - store.wanted) & tables.keys()):
            yield Difference(name, f"{name} keeps rows of {tables.get(topic, topic)}, which [sinks.{name}] leaves out")


def _views(settings: Settings, made: MadeFacts) -> Iterator[Difference]:
    views = made.views
    if views is None or isinstance(views, Unknown):
        return
    for name in sorted(settings.views.keys() - views.published):
        yield Difference("views", f"the view {name} is not published yet", f"cdc view run {name}")
    for name in sorted(views.changed):
        yield Difference("views", f"the view {name} was published from another text", "give a changed view a new name")
    yield from (Difference("views", *unfed_view(name)) for name in views.unfed)
    for name in sorted(views.published - settings.views.keys()):
        yield Difference("views", f"the view {name} is published, and the settings have none", f"cdc view drop {name}")
    for name in sorted(settings.streams.keys() - views.streams):
        yield Difference("streams", f"the stream {name} is not published yet", f"cdc stream run {name}")
    for name in sorted(views.streams - settings.streams.keys()):
        said = f"the stream {name} is published, and the settings have none"
        yield Difference("streams", said, f"cdc stream drop {name}")
