"""What capture does with tables that are set aside: progress never passes one that is not noted (H119)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.capture_loop import Capture, CaptureSession, CaptureStop, StartingPoint
from cdc.figures.capture_metrics import CaptureFigures
from cdc.process.clock import ManualClock
from cdc.process.errors import LogError
from cdc.record.ports import StreamBatch
from cdc.record.progress import Progress
from cdc.record.tables_aside import asides_of
from cdc.record.topic_names import TableName, partition_of
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts, Limits
from connectors.session.asides import SessionAsides, SetAside
from tests.memory_log import MemoryCompactedTopic, MemoryStream, MemoryStreamLog
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import PIPELINE, Rows, Shapes
from tests.unit.connectors.session.noting import NAME, OTHER, PROGRESS, SHAPE, WHY, noted, set_aside


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
            masks=NO_MASKS,
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
        asides=SessionAsides(asides, assembler, {NAME: SHAPE.topic}.get),
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
    rounds = SessionAsides(asides, assembler, lambda table: f"shop.{table}")
    assert rounds.lacking.keys() == {"shop.my.schema.gone"}
    asides.remedy("my.schema.gone", 7)
    rounds.turn(None, 1.0)
    assert not assembler.announced
    rounds.turn(900, 1.0)
    assert assembler.announced == ["my.schema.gone"]


def test_h119_a_waiting_table_is_named_with_its_oldest_record() -> None:
    class Waits:
        oldest_waiting = 800

        def announce_again(self, table: str, oid: int) -> None: ...

        def waiting(self) -> dict[TableName, int]:
            return {SHAPE.table: 2, OTHER.table: 1}

        def oldest_of(self, table: TableName) -> int | None:
            return 800 if table == SHAPE.table else 900

    state = MemoryCompactedTopic()
    asides = set_aside(state)
    rounds = SessionAsides(asides, Waits(), lambda table: None)
    for now_s in (1.0, 4.0):
        rounds.turn(None, now_s)
    asides.write_notes()
    found = asides_of(state.read())
    assert {name: one.since_lsn for name, one in found.items()} == {NAME: 800, str(OTHER.table): 900}
