"""Native capture and Debezium side by side on the same tables: what ``cdc connect compare`` runs.

Each gets topics and a slot of its own, both read one publication; nothing of the pipeline itself is touched.
Two logical messages mark where the comparison begins and ends. What a killed run leaves is removed by the next.
"""

from __future__ import annotations

import subprocess
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from cdc.capture import Stop, keep_capturing
from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.comparison.lossless import parse
from cdc.comparison.records import Facts, Record
from cdc.comparison.verdict import Comparison, judge
from cdc.comparison.window import Window, comparable
from cdc.cuts import Cut
from cdc.errors import ConfigError, LogError, UsageError
from cdc.metrics import CaptureFigures
from cdc.progress import PROGRESS_KEY, Progress
from cdc.settings import Settings
from cdc.state import TopicsState
from cdc.topic import reserved_topics
from cdc.wiring import open_progress, open_schemas, open_source, open_state, require_broker
from cdc.wiring.capture import open_capture
from cdc.wiring.compared_rows import SourceRows
from cdc.wiring.debezium import open_connector
from cdc.wiring.pipeline import prepare_pipeline
from cdc.wiring.snapshot import build_snapshot
from cdc.wiring.verification import open_cut

if TYPE_CHECKING:
    from connectors.connect.connector import Connector
    from connectors.postgres.cut import SourceCut

Say = Callable[[str], None]
_PREFIX = "cdc.compare"
_POLL_S = 0.2
_MARK_S = 1.0
_STEADY_S = 2.0
_PATIENCE_S = 120.0
_NAME_LENGTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to compare: the changes of ``for_s`` seconds, or those made until ``command`` has ended; with ``rows`` the
    rows of a first snapshot too. ``keep``: leave topics, slots and connector."""

    for_s: float = 60.0
    command: Sequence[str] = ()
    rows: bool = False
    keep: bool = False


@dataclass(slots=True)
class _Sides:
    """The two pipelines. ``publication_made``: whether it is ours to drop."""

    native: Settings
    debezium: Settings
    publication_made: bool = field(default=False)


def compare_captures(settings: Settings, trial: Trial, say: Say, clock: Clock = SYSTEM_CLOCK) -> Comparison:
    """Run both, compare their topics, and remove what was made.

    Raises what stands in the way of either: ConfigError, SourceError, SlotError, ConnectError, TopicError, LogError;
    UsageError when ``command`` failed.
    """
    require_broker(settings)
    sides = _sides(settings)
    clean(settings, say)
    with ExitStack() as exits:
        if not trial.keep:
            exits.callback(clean, settings, say)
        prepare_pipeline(sides.native)
        build_snapshot(sides.native, _Quiet(), workers=1).run(rows=trial.rows)
        native = exits.enter_context(_capturing(sides.native))
        connector = open_connector(sides.debezium)
        connector.deploy()
        marks = exits.enter_context(closing(_Marks(sides, native, connector, clock)))
        begin = marks.begin()
        say("both capture; comparing from here on")
        _work(trial, clock, native)
        end = marks.end()
        say("comparing the topics")
        source = exits.enter_context(closing(open_cut(sides.native)))
        cut = marks.cut(source)
        return _compare(settings, sides, Window(begin, end, trial.rows), SourceRows(sides.native, source, cut))


def clean(settings: Settings, say: Say) -> None:
    """Remove connector, slots, topics and publication of a comparison, as far as they are there."""
    from connectors.debezium.client import MissingConnector
    from connectors.kafka.admin import TopicAdmin
    from connectors.postgres.publication import drop_publication
    from connectors.postgres.slot import drop_slot

    sides = _sides(settings)
    with suppress(MissingConnector):
        open_connector(sides.debezium).withdraw()
        say(f"removed the connector {sides.debezium.name}")
    with closing(open_source(settings, application_name="cdc compare")) as session:
        for side in (sides.native, sides.debezium):
            if drop_slot(session, side.slot):
                say(f"dropped the slot {side.slot}")
        if sides.publication_made:
            drop_publication(session, sides.native.publication)
    admin = TopicAdmin(settings.log)
    heads = tuple(f"{head}{side.name}" for side in (sides.native, sides.debezium) for head in ("", _HEARTBEATS))
    admin.delete(topic for topic in admin.names() if topic.startswith(tuple(f"{h}." for h in heads)) or topic in heads)


_HEARTBEATS = "__debezium-heartbeat."


def _sides(settings: Settings) -> _Sides:
    from connectors.postgres.facts import read_publication

    if settings.debezium is None or settings.debezium.database != "postgres":
        raise ConfigError(
            "a comparison needs a [debezium] section for Postgres: the native capture reads nothing else",
            hint='add [debezium] with url = "http://127.0.0.1:8083"',
        )
    with closing(open_source(settings, application_name="cdc compare")) as session:
        there = read_publication(session, settings.publication) is not None
    base = settings.name[:_NAME_LENGTH]
    publication = settings.publication if there else f"cdc_compare_{settings.slot}"[:63]
    native = _side(settings, f"{base}-native", "postgres", publication)
    return _Sides(native, _side(settings, f"{base}-debezium", "debezium", publication), not there)


def _side(settings: Settings, name: str, kind: str, publication: str) -> Settings:
    """The same tables, encoding and partitions under another name."""
    source = settings.source.model_copy(
        update={
            "kind": kind,
            "slot": None,
            "publication": publication,
            "topics": {table: f"{name}.{topic}" for table, topic in settings.source.topics.items()},
        }
    )
    assert settings.debezium is not None
    options = {
        **settings.debezium.options,
        "publication.autocreate.mode": "disabled",
        "message.prefix.exclude.list": r"cdc\.(?!compare$).*",
        "slot.drop.on.stop": "false",
    }
    debezium = settings.debezium.model_copy(
        update={"connector": None, "schemas": False, "signal_table": None, "options": options}
    )
    capture = settings.capture.model_copy(update={"http_address": ""})
    # Tables that are read again are nothing that the other side has.
    snapshot = settings.snapshot.model_copy(update={"watch": timedelta(0)})
    return settings.model_copy(
        update={
            "name": name,
            "source": source,
            "debezium": debezium,
            "capture": capture,
            "snapshot": snapshot,
            "sinks": {},
        }
    )


class _Quiet:
    """A reporter nobody listens to."""

    def say(self, sentence: str) -> None: ...
    def plan(self, tables: Any) -> None: ...
    def progress(self, table: str, rows: int, share: float) -> None: ...


class _Capture:
    """The capture daemon's loop in a thread."""

    def __init__(self, settings: Settings) -> None:
        self._stop = Stop(SYSTEM_CLOCK, settings.capture.drain_timeout.total_seconds())
        self._figures = CaptureFigures(ticked_s=SYSTEM_CLOCK.monotonic())
        self._opening = open_capture(settings, figures=self._figures, stop=self._stop, clock=SYSTEM_CLOCK)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="native capture", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what ended it."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._stop.want()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            keep_capturing(self._opening.open, figures=self._figures, stop=self._stop, clock=SYSTEM_CLOCK)
        except BaseException as error:
            self._error = error


@contextmanager
def _capturing(settings: Settings) -> Iterator[_Capture]:
    with closing(_Capture(settings)) as capture:
        yield capture


class _Marks:
    """Logical messages that both captures pass: Debezium writes them to a topic, ours moves its progress past them."""

    def __init__(self, sides: _Sides, native: _Capture, connector: Connector, clock: Clock) -> None:
        self._sides = sides
        self._native = native
        self._connector = connector
        self._clock = clock
        self._session = open_source(sides.native, application_name="cdc compare")
        self._progress = open_progress(sides.native)

    def close(self) -> None:
        self._session.close()

    def begin(self) -> int:
        """Mark until one arrives; the LSN behind it. The first snapshot may take its time before."""
        marked: dict[str, int] = {}
        next_s = self._clock.monotonic()
        while True:
            now_s = self._clock.monotonic()
            if now_s >= next_s:
                next_s = now_s + _MARK_S
                marked[f"begin {len(marked)}"] = self._mark(f"begin {len(marked)}")
                self._look()
            seen = self._seen() & marked.keys()
            if seen:
                lsn = max(marked[text] for text in seen)
                self._await_native(lsn)
                return lsn
            self._clock.sleep(_POLL_S)

    def end(self) -> int:
        """Mark, and return when both have passed it and their topics are still."""
        lsn = self._mark("end")
        deadline_s = self._clock.monotonic() + _PATIENCE_S
        while "end" not in self._seen():
            self._look()
            if self._clock.monotonic() > deadline_s:
                raise LogError(
                    f"Debezium did not pass the last change in {_PATIENCE_S:g} s",
                    hint="the load may be more than it carries: compare for a shorter time, or with less load",
                )
            self._clock.sleep(_POLL_S)
        self._await_native(lsn)
        ends = self._ends()
        while True:
            self._clock.sleep(_STEADY_S)
            now = self._ends()
            if now == ends:
                return lsn
            ends = now

    def cut(self, source: SourceCut) -> Cut:
        """One state of the source, when our topics hold everything that is in it."""
        cut = source.cut()
        self._await_native(cut.fence)
        return cut

    def _mark(self, content: str) -> int:
        row = self._session.execute(b"select pg_logical_emit_message(true, %s, %s)", [_PREFIX, content]).fetchone()
        assert row is not None
        # Another statement: its answer lies behind the first one's commit.
        behind = self._session.execute(b"select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert behind is not None
        return int(behind[0])

    def _look(self) -> None:
        self._native.check()
        self._connector.require_healthy()

    def _seen(self) -> set[str]:
        """Contents of the marks that Debezium has written."""
        from connectors.kafka.admin import TopicAdmin
        from connectors.kafka.compacted import read_range

        side = self._sides.debezium
        topic = f"{side.name}.message"
        facts = TopicAdmin(side.log).describe([topic])
        messages = (
            orjson.loads(message.value() or b"null")
            for partition in range(facts[topic].partitions if topic in facts else 0)
            for message in read_range(side.log, topic, partition)
        )
        return {b64decode(told["message"]["content"]).decode() for told in messages if told}

    def _await_native(self, lsn: int) -> None:
        deadline_s = self._clock.monotonic() + _PATIENCE_S
        while self._clock.monotonic() < deadline_s:
            self._native.check()
            held = self._progress.read().get(PROGRESS_KEY)
            if held is not None and Progress.from_json(held).lsn >= lsn:
                return
            self._clock.sleep(_POLL_S)
        raise LogError(f"the native capture did not pass the last change in {_PATIENCE_S:g} s", hint="cdc check")

    def _ends(self) -> object:
        from connectors.kafka.admin import TopicAdmin

        return _ends(TopicAdmin(self._sides.debezium.log), self._sides.debezium)


def _ends(admin: Any, side: Settings) -> object:
    topics = [topic for topic in admin.names() if topic.startswith(f"{side.name}.")]
    return admin.end_offsets({topic: facts.partitions for topic, facts in admin.describe(topics).items()})


def _work(trial: Trial, clock: Clock, native: _Capture) -> None:
    if not trial.command:
        until_s = clock.monotonic() + trial.for_s
        while clock.monotonic() < until_s:
            native.check()
            clock.sleep(min(1.0, max(0.0, until_s - clock.monotonic())))
        return
    try:
        # What it prints is talk here: our own stdout holds the result alone.
        done = subprocess.run(list(trial.command), check=False, stdout=2)
    except OSError as error:
        raise UsageError(f"{trial.command[0]} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        raise UsageError(f"{trial.command[0]} ended with {done.returncode}", hint="nothing was compared")


def _compare(settings: Settings, sides: _Sides, window: Window, source: SourceRows) -> Comparison:
    from cdc.comparison.records import table_facts
    from connectors.connect.tables import read_tables
    from connectors.kafka.admin import TopicAdmin

    schemas = open_schemas(sides.native).versions()
    with closing(open_source(settings, application_name="cdc compare")) as session:
        facts: Facts = table_facts(read_tables(session), schemas)
    state = TopicsState.find(open_state(sides.native).read())
    tables = {topic: table for table, topic in state.tables.items()} if state is not None else {}
    by_end = {topic.removeprefix(f"{sides.native.name}."): table for topic, table in tables.items()}
    own = {*reserved_topics(sides.debezium.name), f"{sides.debezium.name}.signals"}
    theirs: dict[str, list[Record]] = {}
    for topic in TopicAdmin(settings.log).names():
        if topic.startswith(f"{sides.debezium.name}.") and topic not in own:
            end = topic.removeprefix(f"{sides.debezium.name}.")
            theirs[by_end.get(end, end)] = []
    ours = {table: topic for topic, table in tables.items()}
    verdicts = []
    for table in sorted(theirs.keys() | ours.keys()):
        whole = _records(sides.native, ours[table], table) if table in ours else []
        one, two = window.cut(_records(sides.debezium, f"{sides.debezium.name}.{_end_of(by_end, table)}", table), whole)
        verdicts.append(
            judge(
                table,
                settings.log.encoding,
                [comparable(record, sides.debezium.name) for record in one],
                [comparable(record, sides.native.name) for record in two],
                facts,
                source.of(table, whole),
            )
        )
    return Comparison(encoding=settings.log.encoding, begin=window.begin, end=window.end, verdicts=tuple(verdicts))


def _end_of(by_end: dict[str, str], table: str) -> str:
    return next((end for end, name in by_end.items() if name == table), table)


def _records(side: Settings, topic: str, table: str) -> list[Record]:
    """A topic, whole, in the order of its partitions."""
    from connectors.kafka.admin import TopicAdmin
    from connectors.kafka.compacted import read_range

    facts = TopicAdmin(side.log).describe([topic])
    found = []
    for partition in range(facts[topic].partitions if topic in facts else 0):
        for message in read_range(side.log, topic, partition):
            key, value, headers = message.key(), message.value(), message.headers() or ()
            pairs = headers.items() if isinstance(headers, dict) else headers
            found.append(
                Record(
                    table=table,
                    key=parse(key) if isinstance(key, bytes) else None,
                    value=parse(value) if isinstance(value, bytes) else None,
                    headers=tuple((name, text.decode() if isinstance(text, bytes) else "") for name, text in pairs),
                    place=(partition, message.offset() or 0),
                )
            )
    return found
