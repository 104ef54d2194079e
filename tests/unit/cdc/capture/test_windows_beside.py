"""Two and three readings of one table at once: what perfect compaction leaves is the source, whoever reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.capture.transaction_visibility import Visibility, VisibilityGate
from cdc.capture.windows import Window, WindowPairs, Written
from cdc.record.position import Position
from tests.examples import examples
from tests.unit.cdc.capture.test_windows import FIRST_XID, KEYS, PARTITIONS, World, changes

MARK = b"sweep"


@dataclass
class Readings(World):
    """A world in which rows may also go without an event, as those of a detached partition do."""

    parts: list[frozenset[int]] = field(default_factory=list)
    """What each of ``open`` reads."""
    silent: set[int] = field(default_factory=set)
    """Commits that the stream says nothing of."""

    def ask(self, keys: frozenset[int]) -> Window:
        window = self.windows.ask("t")
        self.open.append(window)
        self.parts.append(keys)
        return window

    def vanish(self, key: int) -> None:
        self.silent.add(len(self.commits))
        self.commit({bytes([key]): None})

    def stream(self) -> None:
        if self.streamed in self.silent and self.streamed < len(self.commits):
            self.gate.streamed([self.commits[self.streamed].xid])
            self.streamed += 1
        else:
            super().stream()

    def offer(self, window: Window) -> None:
        """What a reader does, as soon as the gate lets it."""
        if window.position is None or window in self.read_once:
            return
        if not self.gate.passes(window.awaited, self.visibility()):
            return
        self.read_once.append(window)
        wanted = self.parts[self.open.index(window)]
        pairs = sorted((key, value) for key, value in self.rows().items() if key[0] in wanted)
        headers = [("pos", window.position.text().encode()), ("op", b"r")]
        self.windows.offer(window, WindowPairs(pairs=pairs, headers=headers))

    def sweep(self, floor: Position) -> None:
        window = self.windows.ask("t")
        self.turn()
        assert window.position is not None
        headers = [("pos", window.position.text().encode()), ("op", b"t")]
        self.windows.offer(window, WindowPairs(pairs=[(MARK, floor.text().encode())], headers=headers, everywhere=True))
        for _ in range(200):
            self.turn()
        assert isinstance(window.outcome, Written)

    def act(self, choice: int) -> None:
        """Read or turn, as chance has it."""
        if self.open and choice % 2:
            self.offer(self.open[choice // 2 % len(self.open)])
        else:
            self.turn()

    def read_all(self, windows: Sequence[Window], choices: Sequence[int]) -> None:
        for choice in choices:
            self.act(choice)
        for window in windows:
            for _ in range(200):
                self.offer(window)
                self.turn()
            assert isinstance(window.outcome, Written)

    def left(self, *, by_offset: bool) -> dict[bytes, bytes]:
        """What a store holds that reads the log's last records (or its newest), the sweep's floor heeded."""
        newest: dict[tuple[int, bytes], tuple[bytes, bytes | None]] = {}
        for lane, key, value, headers in self.log:
            pos = headers[0][1]
            if by_offset or pos >= newest.get((lane, key), (b"", None))[0]:
                newest[lane, key] = (pos, value)
        marks = [value or b"" for (_, key), (_, value) in newest.items() if key == MARK]
        floor = min(marks) if len(marks) == PARTITIONS else b""
        rows = {key: found for (_, key), found in newest.items() if key != MARK}
        return {key: value for key, (pos, value) in rows.items() if value is not None and pos >= floor}


some = st.sets(st.integers(0, KEYS - 1), min_size=1).map(frozenset)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), changes),
        st.tuples(st.just("vanish"), st.integers(0, KEYS - 1)),
        st.tuples(st.just("ask"), some),
        st.tuples(st.just("ask"), some),
        st.tuples(st.just("show"), st.integers(0, 20)),
        st.tuples(st.just("stream"), st.none()),
        st.tuples(st.just("act"), st.integers(0, 63)),
        st.tuples(st.just("act"), st.integers(0, 63)),
    ),
    max_size=40,
)
choices = st.lists(st.integers(0, 63), max_size=20)
EVERY = frozenset(range(KEYS))


def run(world: Readings, script: Sequence[tuple[str, object]]) -> None:
    for name, argument in script:
        match name, argument:
            case "commit", dict():
                world.commit(argument)
            case "vanish", int():
                world.vanish(argument)
            case "ask", frozenset() if len(world.open) < 6:
                world.ask(argument)
            case "show", int() if world.commits:
                world.commits[argument % len(world.commits)].visible = True
            case "stream", _:
                world.stream()
            case "act", int():
                world.act(argument)


def settle(world: Readings) -> None:
    for commit in world.commits:
        commit.visible = True
    while world.streamed < len(world.commits):
        world.stream()
    world.turn()


def beside(
    script: Sequence[tuple[str, object]], between: Sequence[int], parts: Sequence[frozenset[int]], behind: Sequence[int]
) -> Readings:
    """A whole reading with its sweep, beside windows of others that are read and written at any time: the end of it."""
    world = Readings(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    run(world, script)
    settle(world)
    # Something is committed after whatever went without an event, and streamed: so a request waits for it.
    world.commit({b"\0": b"last"})
    settle(world)
    whole = [world.ask(EVERY - {0}), world.ask(frozenset({0}))]
    for part in parts:
        world.ask(part)
    world.turn()
    world.read_all(whole, between)
    floors = [window.position for window in whole if window.position is not None]
    world.sweep(min(floors))
    world.read_all(world.open, behind)
    return world


@settings(max_examples=examples(300))
@given(script=steps, between=choices, parts=st.lists(some, max_size=2), behind=choices)
def test_h99_readings_beside_each_other_leave_the_source(
    script: list[tuple[str, object]], between: list[int], parts: list[frozenset[int]], behind: list[int]
) -> None:
    world = beside(script, between, parts, behind)
    source = world.rows(all_of=True)
    assert world.left(by_offset=True) == source
    assert world.left(by_offset=False) == source


def test_h99_a_slow_window_writes_no_row_behind_a_newer_ones() -> None:
    """The case that lost 200 of 500 rows: a part read before a whole reading, and written after it."""
    world = Readings(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    world.commit({b"\1": b"v", b"\2": b"v"})
    settle(world)
    slow = world.ask(EVERY)
    world.turn()
    world.commit({b"\0": b"w"})
    settle(world)
    whole = world.ask(EVERY)
    world.turn()
    assert slow.position is not None
    assert whole.position is not None
    assert slow.position < whole.position
    world.read_all([whole], [])
    world.sweep(whole.position)
    world.read_all([slow], [])
    assert slow.outcome == Written(0, 3)
    assert world.left(by_offset=True) == world.rows()


def test_h99_windows_of_one_position_both_write() -> None:
    world = Readings(VisibilityGate(Visibility(FIRST_XID, frozenset())))
    world.commit({b"\1": b"v"})
    settle(world)
    first, second = world.ask(EVERY), world.ask(EVERY)
    world.turn()
    world.read_all([second, first], [])
    assert (first.outcome, second.outcome) == (Written(1, 0), Written(1, 0))
