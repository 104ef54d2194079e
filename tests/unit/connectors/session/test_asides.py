"""What the state topic says of a table that is set aside, and that progress never passes it before (H119)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.aside import AsideState, CannotFollow, Cause, TableState, asides_of, left_out
from cdc.capture import Capture, CaptureSession, CaptureStop, StartingPoint
from cdc.clock import ManualClock
from cdc.errors import LogError
from cdc.metrics import CaptureFigures
from cdc.ports import StreamBatch
from cdc.position import Position
from cdc.progress import Progress
from cdc.state import ReadingState, RequestState, requests_of
from cdc.testing import MemoryCompactedTopic, MemoryStream, MemoryStreamLog
from cdc.topic import TableName, partition_of
from connectors.postgres.assemble import Assembler, AssemblerPorts, Limits
from connectors.session.asides import Rounds, SetAside
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembling import PIPELINE, Rows, Shapes

SHAPE = w.table(w.column("id", "int4", 0), w.column("doc", "text"), w.column("n", "int4"))
OTHER = w.table(*SHAPE.columns, name="others", oid=20000)
NAME = str(SHAPE.table)
PROGRESS = "shop.progress"
WHY = CannotFollow("its key is another one", hint="give it back", cause=Cause.CHANGED, tables=[SHAPE.table])


def set_aside(state: MemoryCompactedTopic, *, histories: Sequence[str] = ()) -> SetAside:
    return SetAside(state, state.read(), epoch=1, clock=ManualClock(), histories=histories)


def noted(state: MemoryCompactedTopic) -> AsideState | None:
    return asides_of(state.read()).get(NAME)


def reread(state: str, floor_lsn: int, epoch: int = 1) -> ReadingState:
    floor = Position(epoch, floor_lsn, 0xFFFFFFFF).text()
    return ReadingState(id=f"snapshot:{NAME}", table=NAME, serial=1, epoch=epoch, state=state, floor=floor)


def by_hand(serial: int, **more: object) -> RequestState:
    return RequestState(id=f"snapshot:{NAME}", table=NAME, after_lsn=0, reason="", serial=serial, by_hand=True, **more)  # type: ignore[arg-type]


def test_h119_a_table_goes_from_aside_to_reading_to_following() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    found = noted(state)
    assert found is not None
    assert (found.state, found.cause, found.since_lsn, found.xid) == (TableState.ASIDE, Cause.CHANGED, 800, 7)
    assert found.sentence() == (
        f"{NAME} is set aside, and lacks changes until it is read again: its key is another one; give it back"
    )
    asides.set_aside(SHAPE.table, WHY, 900, 8)
    assert noted(state) == found, "what it lacks began at the first"
    # Another session takes it up from there.
    asides = set_aside(state)
    assert asides.hindrance(by_hand(5)) == found.sentence()
    asides.remedy(NAME, 7)
    assert asides.remedied() == [(NAME, 7)]
    assert not asides.followed(NAME, 7)
    asides.resume(NAME, 1000, 7)
    assert asides.followed(NAME, 7)
    reading = noted(state)
    assert reading is not None
    assert (reading.state, reading.from_lsn, reading.since_lsn) == (TableState.READING, 1000, 800)
    (request,) = requests_of(state.read())
    assert (request.table, request.after_lsn, request.whole) == (NAME, 1000, True)
    assert asides.hindrance(request) == ""
    asides.read(reread("done", 900))
    assert noted(state) == reading, "that reading began before the table was followed again"
    asides.read(reread("done", 1000))
    assert noted(state) is None
    assert not asides.documents


def test_h119_what_is_noted_is_asked_for_each_time() -> None:
    state = MemoryCompactedTopic()
    set_aside(state).set_aside(SHAPE.table, WHY, 800, 7)
    asides = set_aside(state)
    of = asides.of
    found = of(NAME)
    assert found is not None
    assert found.state is TableState.ASIDE
    asides.resume(NAME, 1000)
    found = of(NAME)
    assert found is not None
    assert found.state is TableState.READING, "its changes are carried again, in this session too"
    asides.read(reread("done", 1000))
    assert of(NAME) is None


def test_h119_what_was_dropped_is_not_written_behind_its_reading() -> None:
    """Another table held progress back: a start brings the changes again that were dropped before the reading."""
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)

    def seen(found: dict[int, Position], after_lsn: int = 500) -> dict[int, Position]:
        return set_aside(state).seen(found, after_lsn, {NAME: SHAPE.topic}.get, {SHAPE.topic: (3, 2)}.__getitem__)

    assert seen({}) == {}
    asides.resume(NAME, 1008)
    until, later = Position(1, 1000, 0xFFFFFFFF), Position(1, 1016, 3)
    assert seen({}) == {3: until, 4: until}
    assert seen({}, 1000) == {3: until, 4: until}, "commits at that place come again"
    assert not left_out(state.read(), 2), "an epoch begins anew"
    assert seen({1: later, 3: later}) == {1: later, 3: later, 4: until}
    over = reread("done", 1024)
    state.write([(over.key(), over.to_json())])
    asides.read(over)
    assert noted(state) is None
    until = Position(1, 1024, 0xFFFFFFFF)
    assert seen({3: later}) == {3: until, 4: until}, "the table is followed, and what was dropped still comes again"
    assert seen({3: later}, 1025) == {3: later}, "progress is behind it"


def test_h119_a_reading_at_the_next_place_for_a_commit_counts() -> None:
    """A keepalive may end anywhere; commits, and so the floors of readings, lie at multiples of eight."""
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1005)
    asides.read(reread("done", 992))
    assert noted(state) is not None
    asides.read(reread("done", 1000))
    assert noted(state) is None


def test_h119_a_reading_that_ended_unseen_ends_it_too() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1000)
    over = reread("done", 1008)
    state.write([(over.key(), over.to_json())])
    again = set_aside(state)
    assert not again.documents
    again.clear()
    assert not [key for key in state.read() if b'"aside"' in key]


def test_h120_a_reading_that_fails_sets_the_table_aside_again() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1000)
    asides.read(reread("failed", 1008))
    found = noted(state)
    assert found is not None
    assert (found.state, found.cause, found.since_lsn) == (TableState.ASIDE, Cause.NOT_READABLE, 800)
    assert asides.pending() == [], "not at once again"


def test_h120_an_operator_who_asks_takes_the_key_as_it_is() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.hindrance(by_hand(5, where="id = 3"))
    assert not asides.asked(NAME), "some rows are not the table"
    asides.hindrance(by_hand(5))
    assert asides.asked(NAME)
    asides.resume(NAME, 1000)
    found = noted(state)
    assert found is not None
    assert found.new_key
    asides.set_aside(SHAPE.table, WHY, 1100, 9)
    found = noted(state)
    assert found is not None
    assert found.since_lsn == 800, "it was not read in between"
    asides.hindrance(by_hand(5))
    assert not asides.asked(NAME), "one wish is tried once"
    asides.hindrance(by_hand(6))
    assert asides.asked(NAME)


def test_h119_the_request_stands_before_the_note_that_counts_on_it() -> None:
    """A crash between the two records leaves a table that is aside, and not one that nobody reads."""
    written: list[bytes] = []

    class Ordered(MemoryCompactedTopic):
        def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
            found = list(records)
            written.extend(key for key, _ in found)
            super().write(found)

    asides = set_aside(Ordered())
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    written.clear()
    asides.resume(NAME, 1000)
    assert [b'"request"' in key for key in written] == [True, False]


def test_h120_what_fails_again_and_again_is_tried_less_and_less_often() -> None:
    clock = ManualClock()
    asides = SetAside(MemoryCompactedTopic(), {}, epoch=1, clock=clock)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    waits = []
    for _ in range(9):
        asides.resume(NAME, 1000)
        asides.read(replace(reread("failed", 1008), id=f"snapshot:{NAME}:where:1"))
        assert asides.pending() == []
        assert asides.documents[NAME].state is TableState.READING, "another reading's failure is not this one's"
        asides.read(reread("failed", 1008))
        began_s = clock.monotonic()
        while not asides.pending():
            clock.advance(1)
        waits.append(clock.monotonic() - began_s)
    assert waits == [3, 6, 12, 24, 48, 96, 192, 300, 300]
    asides.resume(NAME, 1000)
    asides.read(reread("done", 1008))
    asides.set_aside(SHAPE.table, WHY, 1100, 8)
    assert [one.table for one in asides.pending()] == [NAME], "it was followed: another cause is another matter"


def test_h120_another_key_is_taken_only_for_the_reading_that_an_operator_asked_for() -> None:
    state, taken = MemoryCompactedTopic(), dict[str, bool]()
    asides = SetAside(state, {}, epoch=1, clock=ManualClock(), accept=taken.__setitem__)
    asides.set_aside(SHAPE.table, WHY, 800, 7)
    asides.resume(NAME, 1000)
    assert taken == {NAME: False}, "nobody asked"
    asides.set_aside(SHAPE.table, WHY, 1100, 8)
    asides.hindrance(by_hand(5))
    asides.resume(NAME, 1200)
    assert taken == {NAME: True}
    taken.clear()
    asides = SetAside(state, state.read(), epoch=1, clock=ManualClock(), accept=taken.__setitem__)
    assert taken == {NAME: True}, "another session goes on with it"
    asides.set_aside(SHAPE.table, WHY, 1300, 9)
    assert taken == {NAME: False}, "the next key is another wish"


def test_h119_a_table_that_waits_is_named_and_forgotten() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.note_waiting(NAME, 800)
    found = noted(state)
    assert found is not None
    assert (found.state, found.due) == (TableState.WAITING, False)
    assert asides.hindrance(by_hand(5)) == found.sentence()
    restarted = set_aside(state)
    assert not restarted.documents, "what waited comes again"
    restarted.clear()
    assert noted(state) is None
    asides.waits_no_more(NAME)
    assert not asides.documents


def test_h120_a_history_is_not_noted() -> None:
    state = MemoryCompactedTopic()
    with pytest.raises(CannotFollow):
        set_aside(state, histories=[NAME]).set_aside(SHAPE.table, WHY, 800, 7)
    assert state.read() == {}


class Watched(MemoryCompactedTopic):
    """Keeps where progress and acknowledgement stood at each write. ``away``: nothing can be written."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryStreamLog()
        self.stream = MemoryStream()
        self.passed: list[int] = []
        self.away = False

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        if self.away:
            raise LogError("the broker is away")
        found = [Progress.from_json(one.value or b"").lsn for one in self.log.broker.of(PROGRESS)]
        self.passed.append(max([0, *found, *self.stream.acknowledged]))
        super().write(records)


LACKING = w.update([b"1", w.u, b"5"])
INSERTS = [w.insert(b"%d" % n, b"x" * 300, b"1") for n in range(3)]
CHANGES = st.lists(
    st.sampled_from([LACKING, *INSERTS, w.insert(b"1", b"", b"1", oid=OTHER.oid)]), min_size=1, max_size=5
)


@given(
    transactions=st.lists(CHANGES, min_size=1, max_size=6),
    limit=st.integers(1, 3000),
    splits=st.lists(st.integers(0, 60), max_size=6),
    away=st.booleans(),
)
def test_h119_progress_passes_a_table_only_once_it_is_noted(
    transactions: list[list[bytes]], limit: int, splits: list[int], away: bool
) -> None:
    state = Watched()
    state.away = away
    clock = ManualClock()
    frames = _frames(transactions)
    borders = sorted({0, len(frames), *(split % len(frames) for split in splits)})
    end = 801 + 100 * len(transactions)
    batches = [StreamBatch(frames[low:high], None) for low, high in pairwise(borders)]
    stop = CaptureStop(clock, 30.0)
    state.stream = MemoryStream([*batches, StreamBatch([], end + 8)], at_end=stop.want, clock=clock)
    asides = SetAside(state, {}, epoch=1, clock=clock)
    session = _session(state, asides, clock, limit)
    try:
        Capture(session, figures=CaptureFigures(), stop=stop, clock=clock).run()
    except LogError:
        assert away
    found = noted(state)
    newest = [Progress.from_json(one.value or b"") for one in state.log.broker.of(PROGRESS)]
    stood = max([0, *(one.lsn for one in newest), *state.stream.acknowledged])
    oldest = session.assembler.oldest_waiting
    if found is not None:
        assert state.passed[0] <= found.since_lsn
        assert newest[-1].lsn >= end
        assert list(newest[-1].aside) == [SHAPE.topic], "the record says of which table it does not speak"
    elif oldest is not None:
        assert stood <= oldest


def _frames(transactions: list[list[bytes]]) -> list[bytes]:
    frames = []
    for number, messages in enumerate(transactions):
        lsn = 800 + 100 * number
        announced = [] if number else [w.relation(SHAPE), w.relation(OTHER)]
        frames += [w.frame(m, lsn - 1) for m in (w.begin(lsn, 555 + number), *announced, *messages, w.commit(lsn))]
    return frames


def _session(state: Watched, asides: SetAside, clock: ManualClock, limit: int) -> CaptureSession:
    log, head = state.log, Rows()
    head.locked.add(SHAPE.oid)
    lanes = {schema.topic: (log.open(schema.topic, [0]), 1) for schema in (SHAPE, OTHER)}
    assembler = Assembler(
        PIPELINE,
        AssemblerPorts(
            schemas=Shapes(SHAPE, OTHER),
            lanes=lanes.__getitem__,
            partition=partition_of,
            reselect=head,
            overflow=log.produce,
            asides=asides,
        ),
        limits=Limits(waiting_bytes=limit),
    )
    return CaptureSession(
        stream=state.stream,
        assembler=assembler,
        log=log,
        start=StartingPoint(epoch=1, position=0, topic=PROGRESS, lane=log.open(PROGRESS, [0])),
        look=lambda: (None, None),
        close=lambda works: None,
        asides=Rounds(asides, assembler, {NAME: SHAPE.topic}.get),
    )


def test_h119_a_table_is_followed_again_between_two_transactions() -> None:
    state = MemoryCompactedTopic()
    asides = set_aside(state)
    asides.set_aside(TableName("my.schema", "gone"), WHY, 800, 7)

    class Announces:
        oldest_waiting = None
        announced: list[str] = []  # noqa: RUF012 - one test's

        def announce_again(self, table: str, oid: int) -> None:
            self.announced.append(table)

        def waiting(self) -> dict[TableName, int]:
            return {}

        def oldest_of(self, table: TableName) -> int | None:
            return None

    assembler = Announces()
    rounds = Rounds(asides, assembler, lambda table: f"shop.{table}")
    assert rounds.lacking.keys() == {"shop.my.schema.gone"}
    asides.remedy("my.schema.gone", 7)
    rounds.turn(None, 1.0)
    assert not assembler.announced
    rounds.turn(900, 1.0)
    assert assembler.announced == ["my.schema.gone"]


def test_h119_a_table_that_waits_is_named_with_its_own_oldest_record() -> None:
    class Waits:
        oldest_waiting = 800

        def announce_again(self, table: str, oid: int) -> None: ...

        def waiting(self) -> dict[TableName, int]:
            return {SHAPE.table: 2, OTHER.table: 1}

        def oldest_of(self, table: TableName) -> int | None:
            return 800 if table == SHAPE.table else 900

    state = MemoryCompactedTopic()
    rounds = Rounds(set_aside(state), Waits(), lambda table: None)
    for now_s in (1.0, 4.0):
        rounds.turn(None, now_s)
    found = asides_of(state.read())
    assert {name: one.since_lsn for name, one in found.items()} == {NAME: 800, str(OTHER.table): 900}
