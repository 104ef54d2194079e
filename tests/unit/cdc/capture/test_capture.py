"""The loop, on doubles of its ports and a clock that the test moves."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import orjson
import pytest

from cdc.capture.capture_loop import CaptureSession, CaptureStop, StartingPoint, Stopped, keep_capturing
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import ManualClock
from cdc.process.errors import ActiveError, ConfigError, LogError, Retry, SourceError
from cdc.record.ports import Record, StreamBatch
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.source_lineage import SourceLineage
from cdc.settings.secret_reference import LONG_S, SHORT_S, RefusedLogin
from tests.memory_log import MemoryStream


class Done(NamedTuple):
    end_lsn: int
    committed_us: int
    rows: int
    xid: int = 0


@dataclass
class FakeLog:
    """Holds what is produced after ``delay`` calls of acked, and ``most`` groups of it."""

    clock: ManualClock
    groups: list[list[Record]] = field(default_factory=list)
    delay: int = 0
    calls: int = 0
    failure: LogError | None = None
    most: int = 1 << 62

    def open(self, topic: str, next_offsets: Sequence[int]) -> int:
        return 0

    def produce(self, records: Sequence[Record]) -> int:
        self.groups.append(list(records))
        return len(self.groups)

    @property
    def newest(self) -> int:
        return len(self.groups)

    def acked(self, timeout_s: float = 0) -> int:
        if self.failure is not None:
            raise self.failure
        self.calls += 1
        self.clock.advance(timeout_s)
        return min(self.most, len(self.groups)) if self.calls > self.delay else 0

    def offsets(self) -> dict[str, dict[int, int]]:
        return {"s.public.t": {0: 7}, "s.progress": {0: 3}}

    def ahead(self, lsn: int) -> dict[str, dict[int, str]]:
        return {}

    def progress(self) -> list[int]:
        return [orjson.loads(r[2] or b"")["lsn"] for group in self.groups for r in group if r[1] == PROGRESS_KEY]


class Made(NamedTuple):
    records: list[Record]
    commits: list[Done]


@dataclass
class FakeAssembler:
    """A frame is the transaction it ends: one record per row."""

    in_transaction: bool = False
    open_commit_us: int | None = None
    newest_xid: int = 770
    oldest_waiting: int | None = None
    waiting_lanes: frozenset[int] = frozenset()

    def resume(self) -> Sequence[Record]:
        return ()

    def feed(self, frames: Sequence[bytes], now_ns: int) -> Made:
        made = Made([], [])
        for frame in frames:
            end_lsn, rows = orjson.loads(frame)
            made.records.extend((0, b"k", b"v", []) for _ in range(rows))
            made.commits.append(Done(end_lsn, 1, rows))
        return made

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter()

    lost = counts


LINEAGE = SourceLineage("7301", 2, ((1, 40),))


@dataclass
class Setting:
    """A capture on doubles. ``opened`` counts the sessions; ``problems`` are raised at opening, first ones first."""

    batches: deque[StreamBatch] = field(default_factory=deque)
    problems: deque[Exception] = field(default_factory=deque)
    clock: ManualClock = field(default_factory=ManualClock)
    figures: CaptureFigures = field(default_factory=CaptureFigures)
    at_end: Callable[[], None] | None = None
    assembler: FakeAssembler = field(default_factory=FakeAssembler)
    opened: int = 0
    closed: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stop = CaptureStop(self.clock, 30.0)
        self.log = FakeLog(self.clock)
        self.stream = MemoryStream(self.batches, at_end=self.at_end or self.stop.want, clock=self.clock)

    def open(self) -> CaptureSession:
        self.opened += 1
        if self.problems:
            problem = self.problems.popleft()
            if problem.args:
                raise problem
        return CaptureSession(
            stream=self.stream,
            assembler=self.assembler,
            log=self.log,
            start=StartingPoint(epoch=1, position=0, topic="s.progress", lane=9, lineage=LINEAGE),
            look=lambda: (None, None),
            close=self.closed.append,
        )

    def run(self) -> None:
        keep_capturing(self.open, figures=self.figures, stop=self.stop, clock=self.clock)


def transaction(end_lsn: int, rows: int) -> bytes:
    return orjson.dumps([end_lsn, rows])


def test_h16_stop_acknowledges_everything_that_was_read() -> None:
    setting = Setting(deque([StreamBatch([transaction(80, 3), transaction(160, 2)], None), StreamBatch([], 400)]))
    setting.log.delay = 3
    setting.run()
    assert [len(group) for group in setting.log.groups if group[0][1] == b"k"] == [5]
    assert setting.log.progress()[-1] == 400
    assert setting.stream.acknowledged[-1] == 400
    assert setting.stream.closed
    assert setting.closed == [True]
    assert (setting.figures.transactions, setting.figures.transaction_rows) == (2, 5)


def test_h1_nothing_is_acknowledged_while_the_broker_is_silent() -> None:
    setting = Setting(deque([StreamBatch([transaction(80, 1)], None)]))
    setting.log.delay = 10**9
    with pytest.raises(LogError, match="within 30 s"):
        setting.run()
    assert setting.stream.acknowledged == []
    assert setting.figures.stalled_since_s is not None


def test_h95_progress_resumes_at_once_on_an_idle_source() -> None:
    class Waits(FakeAssembler):
        def resume(self) -> Sequence[Record]:
            self.oldest_waiting = None
            return ()

    setting = Setting(deque([StreamBatch([transaction(80, 1)], None)]), assembler=Waits(oldest_waiting=40))
    setting.run()
    assert setting.log.progress()[-1] == 80


def test_progress_names_the_server_of_its_lsn() -> None:
    setting = Setting(deque([StreamBatch([transaction(80, 1)], None)]))
    setting.run()
    written = [record[2] for group in setting.log.groups for record in group if record[1] == PROGRESS_KEY]
    assert {Progress.from_json(value or b"").lineage for value in written} == {LINEAGE}


def test_progress_speaks_of_table_topics_alone() -> None:
    setting = Setting(deque([StreamBatch([transaction(80, 1)], None)]))
    setting.run()
    (value,) = [r[2] for group in setting.log.groups for r in group if r[1] == PROGRESS_KEY]
    assert orjson.loads(value or b"")["offsets"] == {"s.public.t": {"0": 7}}


def test_what_is_wrong_at_the_first_start_is_told_at_once() -> None:
    setting = Setting(problems=deque([SourceError("no route")]))
    with pytest.raises(SourceError, match="no route"):
        setting.run()
    assert setting.opened == 1


def test_later_a_source_that_is_down_is_waited_for() -> None:
    setting = Setting(problems=deque([Exception(), SourceError("down"), SourceError("still down")]))
    broken = iter([SourceError("broke"), None])

    def at_end() -> None:
        error = next(broken)
        if error is not None:
            raise error
        setting.stop.want()

    setting.stream.at_end = at_end
    setting.run()
    assert setting.opened == 4
    assert setting.figures.reconnects == 3
    assert setting.figures.errors == Counter(SourceError=3)


def pauses(*, progress_at: int | None = None) -> list[float]:
    """How long each of seven broken sessions was waited behind; one of them may have come further."""
    setting = Setting()
    ends: list[float] = []

    def at_end() -> None:
        if len(ends) == progress_at and not setting.stream.acknowledged:
            if not setting.log.groups:
                setting.stream.batches.append(StreamBatch([transaction(80, 1)], None))
            return
        ends.append(setting.clock.monotonic())
        if len(ends) == 8:
            setting.stop.want()
        else:
            raise SourceError("division by zero")

    setting.at_end = at_end
    setting.__post_init__()
    setting.run()
    return [round((after - before) * 2) / 2 for before, after in pairwise(ends)]


def test_sessions_without_progress_wait_longer_and_longer() -> None:
    """An error that the server meets at one change again and again: opening alone is no progress."""
    assert pauses() == [0.5, 1, 2, 5, 10, 30, 30]


def test_a_session_with_progress_makes_the_next_one_come_soon() -> None:
    assert pauses(progress_at=4) == [0.5, 1, 2, 5, 0.5, 1, 2]


def test_h115_a_stop_while_the_source_is_away_ends_in_order() -> None:
    setting = Setting(deque([StreamBatch([transaction(80, 1)], None), StreamBatch([transaction(160, 1)], None)]))
    opened = setting.open

    class Waiting(FakeAssembler):
        def feed(self, frames: Sequence[bytes], now_ns: int) -> Made:
            if frames[0] == transaction(160, 1):
                setting.stop.want()
                setting.clock.advance(2)
                assert setting.stop.wanted_s() == 2
                raise Stopped
            return super().feed(frames, now_ns)

    setting.open = lambda: replace(opened(), assembler=Waiting())  # type: ignore[method-assign]
    setting.run()
    assert setting.log.progress()[-1] == 80
    assert setting.stream.acknowledged[-1] == 80
    assert setting.closed == [True]


def test_h57_a_log_that_failed_is_not_waited_for() -> None:
    setting = Setting(deque([StreamBatch([transaction(80, 1)], None)]))
    setting.log.failure = LogError("refused", retry=ConfigError.retry)
    with pytest.raises(LogError):
        setting.run()
    assert setting.closed == [False]
    assert setting.stream.acknowledged == []


def test_h15_another_reader_is_given_two_minutes_to_go() -> None:
    setting = Setting(problems=deque([Exception(), *(ActiveError("in use") for _ in range(100))]))
    setting.stream.at_end = _raising(SourceError("broke"))
    start = setting.clock.monotonic()
    with pytest.raises(ActiveError):
        setting.run()
    assert 120 < setting.clock.monotonic() - start < 180


def _raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def refused_login() -> ConfigError:
    return ConfigError("the login is refused", retry=Retry.SECRET)


def test_x4_a_refused_login_is_tried_for_minutes() -> None:
    setting = Setting(problems=deque([Exception(), *(refused_login() for _ in range(8))]))
    broken = iter([SourceError("broke"), None])

    def at_end() -> None:
        error = next(broken)
        if error is not None:
            raise error
        setting.stop.want()

    setting.stream.at_end = at_end
    began_s = setting.clock.monotonic()
    setting.run()
    assert setting.opened == 10
    assert SHORT_S < setting.clock.monotonic() - began_s < LONG_S


def test_x4_at_the_start_it_is_tried_for_seconds() -> None:
    setting = Setting(problems=deque(refused_login() for _ in range(1_000)))
    began_s = setting.clock.monotonic()
    with pytest.raises(ConfigError, match="the login is refused"):
        setting.run()
    assert SHORT_S < setting.clock.monotonic() - began_s < LONG_S


def test_x4_after_the_limit_a_refused_login_ends_it() -> None:
    clock = ManualClock()
    login = RefusedLogin(clock)
    login.over()
    assert login.may_pass(refused_login())
    clock.sleep(LONG_S)
    assert login.may_pass(refused_login())
    clock.sleep(1)
    assert not login.may_pass(refused_login())
    login.over()
    assert login.may_pass(refused_login()) and not login.may_pass(SourceError("away"))
