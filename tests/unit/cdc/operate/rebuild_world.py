"""A store with generations, the log and what feeds them, in memory; a killed command leaves them as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from cdc.operate.rebuild import GenerationProgress, Rebuild, RebuildPorts, RebuildState, apart
from cdc.process.errors import TopicError
from cdc.record.progress import Offsets, Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.wire.dead_letter import DeadLetter, Orders, Parked, Refusals, Waiting, Why, carry_out, place, queues, waiting
from tests.killing import Steps
from tests.memory_log import MemoryCompactedTopic

SINK = "cache"
TOPIC = "shop.public.t"
_BATCH = 3
"""Records that the filling application takes at once."""
_MOST_LOOKS = 9
"""At a generation that has read the log."""


@dataclass
class Place:
    """A generation: the newest offset of each key, and how far it has read."""

    rows: dict[bytes, int] = field(default_factory=dict)
    read: int = 0
    looks: int = 0
    """How often it was asked for with nothing left to read."""

    def copy(self) -> Place:
        return Place(dict(self.rows), self.read)

    def mark(self) -> Watermark:
        return Watermark(epoch=1, lsn=self.read, offsets={TOPIC: {0: self.read}})


class Letters:
    """The dead letters; a kill between two records of one write leaves the first alone."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.all: list[DeadLetter] = []

    def read(self) -> list[DeadLetter]:
        return list(self.all)

    def write(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            self.all.append(letter)
            self._world.steps.reach("wrote a letter")

    def waiting(self, sink: str) -> list[bytes | None]:
        """The keys that wait for a sink."""
        return sorted({one.key for one in waiting(self.all) if one.sink == sink}, key=str)


class World:
    """One table of one partition and one store. The first generation cannot take offset 1, and later ones not offset 4.

    ``separate``: a store that keeps each generation apart, as a cache does; otherwise the content of its tables is
    replaced, as a warehouse's is.
    """

    def __init__(self, *, separate: bool) -> None:
        self.separate = separate
        self.steps = Steps()
        self.log: list[bytes] = []
        """The key of each record, by offset."""
        self.places: dict[int, Place] = {1: Place()}
        """The generations; where they are not separate, those beside the tables."""
        self.tables = self.places[1] if separate else self.places.pop(1)
        self.used = 1
        self.state = MemoryCompactedTopic()
        self.letters = Letters(self)
        self.stops = False
        self.outdated: set[int] = set()
        """Generations that are behind what the log keeps."""
        self.claim: Watermark | None = None
        """What the generation in use says instead of what it has read."""
        self.told: list[tuple[str, float | None]] = []
        self.snapshot: Callable[[], Offsets | None] = dict
        """Where Debezium's first snapshot ends."""

    def put(self, keys: str) -> None:
        """One record for each letter."""
        self.log += [key.encode() for key in keys]

    def feed(self) -> None:
        """The sink's own application: what is new in the log, then what an operator asked for."""
        self._apply(self.tables, self.used, SINK, len(self.log))
        letters = self.letters.read()
        orders = Orders(SINK, letters).open()
        self.letters.write(carry_out(queues(orders, Waiting(letters)), self._retry))

    def wanted(self) -> dict[bytes, int]:
        """What a later generation shows of the log: all but what it cannot take."""
        parked = self.log[4]
        return {key: offset for offset, key in enumerate(self.log) if key != parked or offset < 4}

    def rebuild(self) -> Rebuild:
        over = self.steps.over
        ports = RebuildPorts(
            generations=over("generations", Generations(self)),
            filling=over("filling", Filling(self)),
            letters=over("letters", self.letters),
            state=over("state", self.state),
            shapes=list,
            written=lambda: Progress(epoch=1, lsn=len(self.log)),
            snapshot=self.snapshot,
        )
        return Rebuild(SINK, ports, separate=self.separate)

    def run(self) -> RebuildState:
        return self.rebuild().run(lambda words, share: self.told.append((words, share)))

    def fill(self, number: int, sink: str, upto: int) -> None:
        self._apply(self.places[number], number, sink, upto)

    def _apply(self, at: Place, number: int, sink: str, upto: int) -> None:
        parked = Parked(sink, self.letters.all)
        found = []
        for offset in range(at.read, min(upto, len(self.log))):
            key = self.log[offset]
            if self._refuses(number, offset) or parked.waits(TOPIC, key):
                found.append(letter(sink, key, offset))
                parked.add(found[-1:])
            else:
                at.rows[key] = offset
        self.letters.write(Parked(sink, self.letters.all).fresh(found))
        at.read = max(at.read, min(upto, len(self.log)))

    def _retry(self, letters: Sequence[DeadLetter]) -> Refusals:
        refused = {place(one): "it does not fit" for one in letters if self._refuses(self.used, one.offset)}
        for one in letters:
            if place(one) not in refused and one.key is not None:
                self.tables.rows[one.key] = max(one.offset, self.tables.rows.get(one.key, 0))
        return refused

    def _refuses(self, number: int, offset: int) -> bool:
        return offset == (1 if number == 1 else 4)


def letter(sink: str, key: bytes, offset: int) -> DeadLetter:
    return DeadLetter(
        sink=sink, why=Why.REFUSED, topic=TOPIC, partition=0, offset=offset, reason="no", key=key, value=b"{}"
    )


class Generations:
    def __init__(self, world: World) -> None:
        self._world = world

    def in_use(self) -> int:
        return self._world.used

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        if not self._world.separate:
            assert number == self._world.used
            self._world.places[number] = self._world.tables.copy()

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        if self._world.used == number:
            return
        found = self._world.places[number]
        self._world.tables = found if self._world.separate else found.copy()
        self._world.used = number

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        assert not (self._world.separate and number == self._world.used)
        self._world.places.pop(number, None)


class Filling:
    def __init__(self, world: World) -> None:
        self._world = world

    def fill(self, run: RebuildState, level: Callable[[GenerationProgress], bool]) -> bool:
        world = self._world
        if run.generation in world.outdated:
            raise TopicError("it may have missed some deletes")
        new = world.places.setdefault(run.generation, Place())
        ends = {TOPIC: {0: len(world.log)}}
        while not level(GenerationProgress(world.claim or world.tables.mark(), ends, new.mark())):
            if world.stops:
                return False
            assert new.looks < _MOST_LOOKS, "it is level and goes on"
            new.looks += new.read >= len(world.log)
            world.fill(run.generation, apart(run), new.read + _BATCH)
            world.steps.reach("filled a batch")
        return True
