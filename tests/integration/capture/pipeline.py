"""A pipeline whose capture is under test: its settings, its source, its running ``cdc run``, what its topics hold."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
import psycopg

from cdc.capture.capture_loop import CaptureStop, keep_capturing
from cdc.capture.transaction_visibility import Gate, Visibility, VisibilityGate
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.position import Position
from cdc.record.progress import Progress
from cdc.record.state import SlotState, TopicsState
from cdc.record.topic_names import partition_of
from cdc.settings.model import Settings, parse
from cdc.wiring import open_state
from cdc.wiring.pipeline import begin_epoch, build_snapshot, open_capture, prepare_pipeline
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from snapshot.source.ports import NoReport
from tests.programs import Spawn, Spawned
from tests.progress_look import ProgressLook
from tests.settings_file import write_settings
from tests.waiting import wait_until

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as its topic holds it; ``value`` parsed, None for a tombstone."""

    topic: str
    partition: int
    offset: int
    key: str
    value: Any
    headers: Mapping[str, bytes]

    @property
    def op(self) -> str:
        return self.headers["op"].decode()

    @property
    def pos(self) -> Position:
        return Position.parse(self.headers["pos"].decode())

    @property
    def short(self) -> str:
        """``op key``, the op in brackets for a tombstone."""
        return f"{self.op if self.value is not None else f'({self.op})'} {self.key}"


class Capturing:
    """The capture daemon without its process: the loop in a thread."""

    def __init__(self, settings: Settings, gate: Callable[[Visibility], Gate] = VisibilityGate) -> None:
        self.figures = CaptureFigures(ticked_s=SYSTEM_CLOCK.monotonic())
        self.command = CaptureStop(SYSTEM_CLOCK, settings.capture.drain_timeout.total_seconds())
        self.error: BaseException | None = None
        self._opening = open_capture(settings, figures=self.figures, stop=self.command, clock=SYSTEM_CLOCK, gate=gate)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def streaming(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.figures.phase == "streaming"

    def stop(self) -> None:
        """Let it drain and end."""
        self.command.want()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            keep_capturing(self._opening.open, figures=self.figures, stop=self.command, clock=SYSTEM_CLOCK)
        except BaseException as error:
            self.error = error


@dataclass
class Pipeline:
    """``document``: the settings, to be changed before they are read. ``spawn`` starts programs."""

    dsn: str
    document: dict[str, Any]
    folder: Path
    spawn: Spawn
    runs: list[Spawned] = field(default_factory=list)
    _capturing: Capturing | None = None
    _progress: ProgressLook | None = None

    @property
    def settings(self) -> Settings:
        return parse(self.document)

    @property
    def name(self) -> str:
        return str(self.document["name"])

    # The source.

    def session(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with self.session() as session:
            for statement in statements:
                session.execute(statement.encode())

    def transaction(self, *statements: str) -> None:
        """All in one transaction."""
        with self.session() as session, session.transaction():
            for statement in statements:
                session.execute(statement.encode())

    def one(self, statement: str, *values: object) -> Any:
        with self.session() as session:
            row = session.execute(statement.encode(), values or None).fetchone()
            return row[0] if row else None

    def confirmed(self) -> int:
        """The slot's confirmed_flush_lsn."""
        return int(
            self.one("select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s", self.slot)
        )

    def fence(self) -> int:
        """An LSN above everything committed so far, which the stream will reach."""
        return int(self.one("select pg_logical_emit_message(true, 'fence', '') - '0/0'"))

    @property
    def slot(self) -> str:
        return self.settings.slot

    # The pipeline.

    def prepare(self, *tables: str) -> None:
        """Make these tables, then what ``cdc init`` and ``cdc snapshot --none`` make."""
        self.execute(*tables)
        prepare_pipeline(self.settings)
        build_snapshot(self.settings, NoReport(), workers=1).run(rows=False)

    def prepare_with_rows(self, *statements: str) -> None:
        """The same with a snapshot of what the statements left."""
        self.execute(*statements)
        prepare_pipeline(self.settings)
        build_snapshot(self.settings, NoReport(), workers=1).run()

    def new_epoch(self) -> int:
        """What ``cdc init --new-epoch --yes`` does; the epoch's number."""
        return begin_epoch(self.settings, SYSTEM_CLOCK)[0]

    def config(self) -> Path:
        """The settings as a file."""
        return write_settings(self.folder, self.document)

    def start(self, crash_at: str = "", **env: str) -> Spawned:
        """Start ``cdc run``; it may end by itself at a crash point."""
        if crash_at:
            env["CDC_CRASH_AT"] = crash_at
        run = self.spawn("cdc", "--config", self.config(), "run", env=env)
        self.runs.append(run)
        return run

    def stream(self, **env: str) -> Spawned:
        """Start ``cdc run`` and return when it streams."""
        run = self.start(**env)
        wait_until(lambda: self.said(run, "streaming"), 30, lambda: run.stderr)
        return run

    @contextmanager
    def capturing(self, gate: Callable[[Visibility], Gate] = VisibilityGate) -> Iterator[Capturing]:
        """Capture in a thread of this process: quicker to start than ``cdc run``, and the same otherwise."""
        capturing = Capturing(self.settings, gate)
        wait_until(lambda: capturing.streaming, 30, lambda: capturing.error)
        self._capturing = capturing
        try:
            yield capturing
        finally:
            self._capturing = None
            capturing.stop()
        assert capturing.error is None, capturing.error

    def said(self, run: Spawned, event: str) -> dict[str, Any] | None:
        """The newest log line of that event."""
        assert run.process.poll() is None or event in run.stderr, f"ended with {run.process.poll()}: {run.stderr}"
        found = [line for line in run.stderr.splitlines() if f'"event":"{event}"' in line]
        return orjson.loads(found[-1]) if found else None

    def state(self) -> dict[bytes, bytes]:
        return dict(open_state(self.settings).read())

    def topics(self) -> TopicsState:
        found = TopicsState.find(self.state())
        assert found is not None
        return found

    def slot_state(self) -> SlotState:
        found = SlotState.find(self.state())
        assert found is not None
        return found

    # What the topics hold.

    def progress(self) -> Progress | None:
        settings = self.settings
        if self._progress is None or self._progress.log != settings.log:
            self._progress = ProgressLook(settings)
        return self._progress.newest()

    def settle(self, deadline_s: float = 30) -> int:
        """Return when the log holds everything committed before the call, by what its progress record says."""
        fence = self.fence()

        def reached() -> bool:
            if self._capturing is None:
                self._raise_ended()
            elif self._capturing.error is not None:
                raise self._capturing.error
            progress = self.progress()
            return progress is not None and progress.lsn > fence

        wait_until(reached, deadline_s, lambda: f"progress {self.progress()} of {fence}")
        return fence

    def _raise_ended(self) -> None:
        run = self.runs[-1]
        if run.process.poll() is not None:
            raise RuntimeError(f"cdc run ended with {run.process.returncode}: {run.stderr}")

    def topic(self, table: str) -> str:
        return f"{self.name}.{table if '.' in table else f'public.{table}'}"

    def records(self, table: str) -> list[Record]:
        """Every record of a table's topic, partition by partition in order; checks partition and headers."""
        topic = self.topic(table)
        count = TopicAdmin(self.settings.log).describe([topic])[topic].partitions
        return [record for partition in range(count) for record in self._partition(topic, partition)]

    def count(self, table: str) -> int:
        """How many records the topic has taken."""
        topic = self.topic(table)
        partitions = self.topics().topics[topic]["partitions"]
        return sum(TopicAdmin(self.settings.log).end_offsets({topic: partitions})[topic].values())

    def by_position(self, table: str) -> list[Record]:
        """The same in the order of the stream; a TRUNCATE, which stands in every partition, once."""
        found = {(record.pos, record.key): record for record in self.records(table)}
        return [found[place] for place in sorted(found)]

    def shorts(self, table: str) -> list[str]:
        return [record.short for record in self.by_position(table)]

    def _partition(self, topic: str, partition: int) -> Iterator[Record]:
        for message in read_range(self.settings.log, topic, partition):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            yield Record(
                topic=topic,
                partition=partition,
                offset=message.offset() or 0,
                key=key.decode(),
                value=orjson.loads(value) if isinstance(value, bytes) else None,
                headers=dict(cast("list[tuple[str, bytes]]", message.headers() or [])),
            )

    # The oracles.

    def compacted(self, table: str) -> dict[str, Row]:
        """What a store holds that applies the topic's records in order: key JSON -> row."""
        store: dict[str, Row] = {}
        positions: dict[str, Position] = {}
        for record in self.by_position(table):
            if record.op == "t" and "__sweep" in record.key:
                floor = Position.parse(record.value["sweep"]["floor"])
                store = {key: row for key, row in store.items() if positions[key] >= floor}
            elif record.op == "t":
                store.clear()
            elif record.value is None or record.op == "d":
                store.pop(record.key, None)
            else:
                store[record.key], positions[record.key] = record.value["after"], record.pos
        return store

    def assert_equal(self, *tables: str) -> None:
        """The topics give the source's rows; every partition is in order, each record once (H75, H8)."""
        for table in tables:
            self.assert_ordered(table)
            with self.session() as session:
                rows = session.execute(f"select row_to_json(t)::text from {table} t".encode()).fetchall()
            source = sorted(orjson.dumps(orjson.loads(row), option=orjson.OPT_SORT_KEYS) for (row,) in rows)
            log = sorted(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in self.compacted(table).values())
            assert log == source, f"{table}: {len(log)} rows in the log, {len(source)} in the source"

    def assert_ordered(self, table: str) -> None:
        """Per partition the streamed position strictly grows, and every key lies in its partition (H56)."""
        last: dict[int, Position] = defaultdict(lambda: Position(0, 0, 0))
        count = self.topics().topics[self.topic(table)]["partitions"]
        for record in self.records(table):
            if record.pos.streamed:
                assert record.pos > last[record.partition], self._around(table, record)
                last[record.partition] = record.pos
            if record.op != "t":
                assert record.partition == partition_of(record.key.encode(), count)

    def _around(self, table: str, record: Record) -> str:
        """What stands around a record that is out of order."""
        near = [
            f"{r.offset} {r.pos} {r.short} captured {r.value and r.value['ts_ms']}"
            for r in self.records(table)
            if r.partition == record.partition and abs(r.offset - record.offset) < 8
        ]
        return f"partition {record.partition} at {record.offset}:\n" + "\n".join(near)

    def text_of(self, *runs: Spawned) -> str:
        return "\n".join(f"{run.stdout}\n{run.stderr}" for run in runs or self.runs)


def refused(run: Spawned, code: int, *words: str, timeout_s: float = 40) -> str:
    """It ended with that exit code, one sentence that has these words, and a hint; never a traceback."""
    got = run.wait(timeout_s)
    lines = [line for line in run.stderr.splitlines() if not line.startswith("{")]
    text = "\n".join(lines)
    assert got == code, f"exit {got}: {run.stderr}"
    assert re.search(r"^error: ", text, re.MULTILINE), run.stderr
    assert re.search(r"^hint: ", text, re.MULTILINE), run.stderr
    assert "Traceback" not in run.stderr
    for word in words:
        assert word in text, f"{word!r} not in {text}"
    return text


def admin_session(pipeline: Pipeline) -> closing[psycopg.Connection[Any]]:
    """A session with the source that the caller closes."""
    return closing(pipeline.session())
