"""Windows: the rows of a later snapshot between the stream's changes, on a source whose commits show late."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.capture import windows as module
from cdc.capture.transaction_visibility import Gate, Visibility, VisibilityGate
from cdc.capture.windows import Closed, Moment, Overrun, Window, WindowPairs, Windows, Written
from cdc.process.errors import SourceError
from cdc.record.ports import Record
from cdc.record.position import CHUNK_SEQ, Position
from tests.examples import examples

KEYS = 4
PARTITIONS = 2
FIRST_XID = 2**32 - 3
"""So that 32-bit ids wrap around during a run."""
FIRST_LSN = 0x1000
STALE = b"stale"
FLOOR = b"floor"


class OpenGate:
    """What a reader without a gate does."""

    def streamed(self, xids: object) -> None: ...

    def awaited(self) -> frozenset[int]:
        return frozenset()

    def saw(self, seen: Visibility) -> None: ...

    def passes(self, awaited: Collection[int], seen: Visibility) -> bool:
        return True


@dataclass
class Commit:
    """``changes``: key -> value, None for a delete; None instead of them for a TRUNCATE."""

    xid: int
    lsn: int
    changes: dict[bytes, bytes | None] | None
    visible: bool = False


@dataclass
class World:
    """A source, its stream, the log, and one pipeline in between."""

    gate: Gate
    commits: list[Commit] = field(default_factory=list)
    log: list[Record] = field(default_factory=list)
    streamed: int = 0
    half: bool = False
    windows: Windows = field(init=False)
    open: list[Window] = field(default_factory=list)
    read_once: list[Window] = field(default_factory=list)
    """Windows whose rows were offered: a reader offers them once."""
    floors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.windows = Windows(
            epoch=1,
            after_lsn=0,
            gate=self.gate,
            lanes=lambda topic: (10, PARTITIONS),
            partition=lambda key, count: key[0] % count,
            produce=self.produce,
        )

    def produce(self, records: Sequence[Record]) -> int:
        self.log.extend(records)
        return len(self.log)

    @property
    def reached(self) -> int:
        return self.commits[self.streamed - 1].lsn + 8 if self.streamed else FIRST_LSN

    def commit(self, changes: dict[bytes, bytes | None] | None) -> None:
        """Row locks keep a change waiting until the one before it shows; TRUNCATE waits for all."""
        touched = set(changes) if changes is not None else None
        for earlier in self.commits:
            if touched is None or earlier.changes is None or touched & set(earlier.changes):
                earlier.visible = True
        number = len(self.commits)
        self.commits.append(Commit(FIRST_XID + number, FIRST_LSN + 16 * number, changes))

    def stream(self) -> None:
        """Deliver the next transaction: its first record, then at the next call the rest and its COMMIT."""
        if self.streamed == len(self.commits):
            return
        commit = self.commits[self.streamed]
        records = self._records(commit)
        part = records[1:] if self.half else records[:1]
        self.windows.touch(part)
        self.log.extend(part)
        self.half = not self.half
        if not self.half:
            self.gate.streamed([commit.xid])
            self.streamed += 1

    def _records(self, commit: Commit) -> list[Record]:
        if commit.changes is None:
            headers = [("pos", Position(1, commit.lsn, 1).text().encode()), ("op", b"t")]
            return [(10 + lane, FLOOR, b"", headers) for lane in range(PARTITIONS)]
        found: list[Record] = []
        for number, (key, value) in enumerate(commit.changes.items(), 1):
            headers = [("pos", Position(1, commit.lsn, number).text().encode()), ("op", b"c" if value else b"d")]
            found.append((10 + key[0] % PARTITIONS, key, value, headers))
        return found

    def visibility(self) -> Visibility:
        """As ``pg_current_snapshot()``: the newest ended transaction's successor, and what has not ended below."""
        ended = [commit.xid for commit in self.commits if commit.visible]
        xmax = max(ended, default=FIRST_XID - 1) + 1
        return Visibility(xmax, frozenset(c.xid for c in self.commits if not c.visible and c.xid < xmax))

    def rows(self, *, all_of: bool = False) -> dict[bytes, bytes]:
        """The table as a read sees it now."""
        table: dict[bytes, bytes] = {}
        for commit in self.commits:
            if not (commit.visible or all_of):
                continue
            if commit.changes is None:
                table.clear()
            for key, value in (commit.changes or {}).items():
                if value is None:
                    table.pop(key, None)
                else:
                    table[key] = value
        return table

    def read(self, window: Window) -> bool:
        """What a reader does with a granted window; False when the gate says to wait."""
        assert window.position is not None
        seen = self.visibility()
        if not self.gate.passes(window.awaited, seen):
            return False
        self.gate.saw(seen)
        self.read_once.append(window)
        headers = [("pos", window.position.text().encode()), ("op", b"r")]
        self.windows.offer(window, WindowPairs(pairs=sorted(self.rows().items()), headers=headers))
        self.floors.append(window.position.text())
        return True

    def turn(self) -> None:
        reached = None if self.half else self.reached
        self.windows.turn(Moment(reached, self.reached, len(self.log)))

    def finish(self) -> None:
        """All shows, all is streamed, and every window is read and written."""
        for commit in self.commits:
            commit.visible = True
        while self.streamed < len(self.commits):
            self.stream()
        self.turn()
        for window in self.open:
            if window not in self.read_once and window.position is not None:
                self.read(window)
        for _ in range(50):
            self.turn()

    def compacted(self) -> dict[bytes, bytes]:
        """What a new store builds from the last record of each key, floors included."""
        last = {(lane, key): (value, headers) for lane, key, value, headers in self.log}
        floor = max((h[0][1] for (_, key), (_, h) in last.items() if key == FLOOR), default=b"")
        rows = {key: (value, h) for (_, key), (value, h) in last.items() if key != FLOOR}
        return {key: value for key, (value, h) in rows.items() if value and h[0][1] >= floor}

    def store(self, *, sweep: str = "") -> dict[bytes, bytes]:
        """What a store holds that read along: newer or equal wins, floors and the sweep remove what lies below."""
        held: dict[bytes, tuple[bytes, bytes | None]] = {bytes([KEYS]): (b"0" * 32, STALE)}
        floor = b""
        for _, key, value, headers in self.log:
            pos = headers[0][1]
            if key == FLOOR:
                floor = max(floor, pos)
                held = {k: v for k, v in held.items() if v[0] >= floor}
            elif pos >= floor and pos >= held.get(key, (b"", None))[0]:
                held[key] = (pos, value)
        return {key: value for key, (pos, value) in held.items() if value and pos >= sweep.encode()}


changes = st.dictionaries(
    st.integers(0, KEYS - 1).map(lambda n: bytes([n])), st.none() | st.binary(min_size=1, max_size=2), min_size=1
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), changes),
        st.tuples(st.just("commit"), st.none()),
        st.tuples(st.just("show"), st.integers(0, 20)),
        st.tuples(st.sampled_from(["stream", "stream", "turn", "ask", "read", "read"]), st.none()),
    ),
    max_size=60,
)


def run(world: World, script: Sequence[tuple[str, object]]) -> None:
    for name, argument in script:
        if name == "commit":
            assert argument is None or isinstance(argument, dict)
            world.commit(argument)
        elif name == "show" and world.commits:
            assert isinstance(argument, int)
            world.commits[argument % len(world.commits)].visible = True
        elif name == "stream":
            world.stream()
        elif name == "turn":
            world.turn()
        elif name == "ask" and len(world.open) < 8:
            world.open.append(world.windows.ask("t"))
        elif name == "read":
            unread = [w for w in world.open if w.position is not None and w not in world.read_once]
            if unread:
                world.read(unread[0])
    world.finish()


@settings(max_examples=examples(400))
@given(script=steps)
@pytest.mark.slow
def test_h72_h74_whatever_the_order_the_log_ends_as_the_source(script: list[tuple[str, object]]) -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    run(world, [("ask", None), *script])
    source = world.rows(all_of=True)
    floor = min(world.floors)
    assert world.compacted() == source
    assert world.store(sweep=floor) == source
    assert all(isinstance(window.outcome, Written) for window in world.open)


@settings(max_examples=examples(100))
@given(script=steps)
def test_a_window_never_writes_a_key_behind_a_newer_change(script: list[tuple[str, object]]) -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    run(world, [("ask", None), *script])
    newest: dict[bytes, bytes] = {}
    for _, key, _, headers in world.log:
        if key == FLOOR:
            continue
        assert headers[0][1] >= newest.get(key, b"")
        newest[key] = headers[0][1]


LOST_UPDATE: list[tuple[str, object]] = [
    ("commit", {b"\0": b"old"}),
    ("show", 0),
    ("stream", None),
    ("stream", None),
    ("commit", {b"\0": b"new"}),
    ("stream", None),
    ("stream", None),
    ("ask", None),
    ("turn", None),
    ("read", None),
    ("turn", None),
]


def test_h72_without_a_gate_an_update_is_lost_and_with_it_none() -> None:
    ungated, gated = World(OpenGate()), World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    run(ungated, LOST_UPDATE)
    run(gated, LOST_UPDATE)
    assert ungated.store()[b"\0"] == b"old"
    assert gated.store()[b"\0"] == b"new"
    assert gated.compacted() == gated.rows(all_of=True)


def test_h72_after_a_restart_what_ran_at_its_start_is_awaited() -> None:
    """Xid 12 was streamed by an earlier session and still shows to nobody."""
    gate = VisibilityGate(Visibility.parse("12:15:12"))
    assert gate.awaited() == {12}
    assert not gate.passes(gate.awaited(), Visibility.parse("12:16:12"))
    assert gate.passes(gate.awaited(), Visibility.parse("16:16:"))


def test_what_is_known_to_be_visible_is_awaited_no_more() -> None:
    gate = VisibilityGate(Visibility.parse("12:15:12,13"))
    gate.streamed([15, 16])
    gate.saw(Visibility.parse("13:17:13,16"))
    assert gate.awaited() == {13, 16}
    gate.streamed([2**32 + 5])
    assert gate.awaited() == {13, 16, 2**32 + 5}


def test_xids_are_compared_across_wraparound() -> None:
    """The stream's 32 bits start anew, the gate's 64 do not."""
    gate = VisibilityGate(Visibility.parse(f"{2**32 - 1}:{2**32 - 1}:"))
    gate.streamed([2**32 - 1, 2**32 + 3])
    assert not gate.passes(gate.awaited(), Visibility.parse(f"{2**32 + 3}:{2**32 + 3}:"))
    assert gate.passes(gate.awaited(), Visibility.parse(f"{2**32 + 4}:{2**32 + 4}:"))


def test_no_window_opens_in_a_transaction_or_below_the_logs_end() -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    world.windows.after_lsn = FIRST_LSN + 100
    window = world.windows.ask("t")
    world.windows.turn(Moment(None, 0, 0))
    world.windows.turn(Moment(FIRST_LSN + 100, 0, 0))
    assert window.position is None
    world.windows.turn(Moment(FIRST_LSN + 108, 0, 0))
    assert window.position == Position(1, (FIRST_LSN + 107) & ~7, CHUNK_SEQ)


def test_rows_wait_until_progress_has_passed_their_position() -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    window = world.windows.ask("t")
    world.windows.turn(Moment(80, 72, 0))
    world.windows.offer(window, WindowPairs(pairs=[(b"\0", b"v")], headers=[("pos", b""), ("op", b"r")]))
    world.windows.turn(Moment(80, 72, 0))
    assert world.log == []
    world.windows.turn(Moment(80, 80, 0))
    assert [record[1] for record in world.log] == [b"\0"]
    assert window.outcome is None
    world.windows.turn(Moment(80, 80, 1))
    assert world.windows.outcome(window) == Written(1, 0)


def test_rows_go_out_in_pieces_without_keys_changed_meanwhile() -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    window = world.windows.ask("t")
    world.windows.turn(Moment(80, 80, 0))
    keys = [n.to_bytes(4) for n in range(module.PIECE_ROWS + 1)]
    headers = [("pos", b""), ("op", b"r")]
    world.windows.offer(
        window, WindowPairs(pairs=[(key, b"v") for key in keys], headers=headers, prefix=b"<", suffix=b">")
    )
    world.windows.turn(Moment(80, 80, 0))
    assert len(world.log) == module.PIECE_ROWS
    assert world.log[0][2] == b"<v>"
    world.windows.touch([(10, keys[-1], b"newer", [("pos", b""), ("op", b"u")])])
    for _ in range(2):
        world.windows.turn(Moment(80, 80, 10**6))
    assert world.windows.outcome(window) == Written(module.PIECE_ROWS, 1)
    assert not world.windows.busy


def test_marks_go_to_every_partition() -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    window = world.windows.ask("t")
    world.windows.turn(Moment(80, 80, 0))
    marks = WindowPairs(pairs=[(b"mark", b"")], headers=[("pos", b""), ("op", b"t")], everywhere=True)
    world.windows.offer(window, marks)
    world.windows.turn(Moment(80, 80, 0))
    assert [(record[0], record[1]) for record in world.log] == [(10, b"mark"), (11, b"mark")]


def test_a_window_that_outlives_too_many_changes_is_given_up() -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    window = world.windows.ask("t")
    world.windows.turn(Moment(80, 80, 0))
    headers = [("pos", b""), ("op", b"u")]
    world.windows.touch([(10, n.to_bytes(4), b"", headers) for n in range(module.TOUCHED_KEYS + 1)])
    world.windows.offer(window, WindowPairs(pairs=[(b"\0", b"v")], headers=headers))
    world.windows.turn(Moment(80, 80, 0))
    assert isinstance(world.windows.outcome(window), Overrun)
    assert world.log == []
    assert window.touched == set()


def test_an_outside_failure_is_raised_and_ends_every_wait() -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    window = world.windows.ask("t")
    world.windows.fail(SourceError("gone"))
    with pytest.raises(SourceError, match="gone"):
        world.turn()
    world.windows.close()
    with pytest.raises(Closed):
        world.windows.granted(window)
    assert world.windows.closed


def test_a_window_given_up_notes_no_more() -> None:
    world = World(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    first, second = world.windows.ask("t"), world.windows.ask("t")
    world.windows.turn(Moment(80, 80, 0))
    world.windows.give_up(first)
    world.windows.turn(Moment(80, 80, 0))
    world.windows.touch([(11, b"\1", b"", [("pos", b""), ("op", b"u")])])
    assert first.touched == set()
    assert second.touched == {b"\1"}
