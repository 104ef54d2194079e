"""A source, its log and both captures in memory, as a comparison sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from cdc.clock import ManualClock
from cdc.comparison.compared_record import ComparedRecord, Facts
from cdc.comparison.lossless import parse
from cdc.comparison.ports import ComparisonPorts
from cdc.comparison.run import Comparing
from cdc.comparison.sides import sides_of
from cdc.cuts import Cut, RepairRow, VerifiedTable
from cdc.position import Position
from cdc.settings import Settings
from tests.killing import Steps

SETTINGS = Settings.model_validate(
    {
        "name": "shop",
        "source": {"dsn": "postgresql://localhost/shop", "kind": "debezium", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "localhost:9092"},
        "debezium": {"url": "http://localhost:8083"},
    }
)
TABLE = "public.t"
_STEP = 0x100


class Waking(ManualClock):
    """The world goes on while one sleeps."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def sleep(self, duration_s: float) -> None:
        super().sleep(duration_s)
        self._act()


class World:
    """One table whose row changes with each sleep of the command: as many changes as ``load``."""

    def __init__(self, load: int = 4) -> None:
        self.clock = Waking(self.go_on)
        self.steps = Steps()
        self.said: list[str] = []
        self.load = load
        self.wal: list[str] = []
        """By transaction: the content of a mark, or nothing for a change."""
        self.native = Native(self)
        self.debezium = Debezium(self)
        self.source = Source(self)
        self.written = Written(self)
        self.sides = sides_of(SETTINGS, published=True)
        self.exit_code = 0

    def go_on(self) -> None:
        if self.load:
            self.load -= 1
            self.wal.append("")
        self.native.go_on()
        self.debezium.go_on()

    def lsn(self) -> int:
        return _STEP * len(self.wal)

    def left(self) -> list[str]:
        """What stands around of a comparison."""
        return sorted(side.name for side in (self.native, self.debezium) if side.exists)

    def clean(self) -> Iterator[str]:
        self.steps.reach("cleaning")
        for side in (self.debezium, self.native):
            if side.exists:
                assert not side.runs or side is self.debezium, "a slot in use is not dropped"
                side.remove()
                self.steps.reach(f"removed {side.name}")
                yield f"removed {side.name}"

    def comparing(self) -> Comparing:
        over = self.steps.over
        ports = ComparisonPorts(
            native=over("native", self.native),
            debezium=over("debezium", self.debezium),
            source=over("source", self.source),
            written=over("written", self.written),
            clean=self.clean,
            run=self._run,
        )
        return Comparing(self.sides, ports, self.said.append, self.clock)

    def _run(self, command: Sequence[str]) -> int:
        self.clock.sleep(1)
        return self.exit_code


class Side:
    """A capture: it writes what is in the log, one transaction for each moment that passes."""

    name = ""

    def __init__(self, world: World) -> None:
        self.world = world
        self.exists = self.runs = self.stuck = False
        self.failure: Exception | None = None
        self.at = 0
        self.records: list[ComparedRecord] = []
        self.seen: list[str] = []

    def start(self, *, rows: bool) -> None:
        assert not self.exists, "records of another comparison are in its topics"
        self.exists = self.runs = True
        self.at = len(self.world.wal)

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """It runs on until it is removed."""

    def remove(self) -> None:
        self.exists = self.runs = False
        self.records, self.seen = [], []

    def go_on(self) -> None:
        for _ in range(2 if self.runs and not self.stuck else 0):
            if self.at < len(self.world.wal):
                self.at += 1
                content = self.world.wal[self.at - 1]
                if content:
                    self.seen.append(content)
                else:
                    self.records.append(self.record(self.at))

    def record(self, number: int) -> ComparedRecord:
        lsn = number * _STEP
        source = f'"name":"{self.name}","snapshot":"false","sequence":"[\\"{lsn - _STEP}\\",\\"{lsn}\\"]"'
        body = f'{{"after":{{"id":1,"v":{number}}},"source":{{{source},"txId":{number},"lsn":{lsn}}},"op":"u"}}'
        pos = Position(1, lsn - 1, 1).text()
        place = (0, len(self.records))
        headers = (("pos", pos), ("op", "u"), ("ver", "1"))
        return ComparedRecord(table=TABLE, key=parse('{"id":1}'), value=parse(body), headers=headers, place=place)


class Native(Side):
    name = "shop-native"

    def reached(self) -> int:
        return self.at * _STEP

    def close(self) -> None:
        self.runs = False


class Debezium(Side):
    name = "shop-debezium"

    def marks(self) -> Collection[str]:
        return list(self.seen)


class Source:
    def __init__(self, world: World) -> None:
        self._world = world
        self.closed = False

    def mark(self, content: str) -> int:
        self._world.wal.append(content)
        return self._world.lsn()

    def cut(self) -> Cut:
        return Cut(self._world.lsn(), self._world.lsn(), certain=True)

    def tables(self) -> Mapping[str, VerifiedTable]:
        return {}

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        return iter(())

    def close(self) -> None:
        self.closed = True


class Written:
    def __init__(self, world: World) -> None:
        self._world = world

    def ends(self) -> object:
        return len(self._world.debezium.records)

    def topics(self) -> tuple[Mapping[str, str], Sequence[str]]:
        names = [f"{side.name}.public.t" for side in (self._world.native, self._world.debezium) if side.records]
        return {TABLE: "shop-native.public.t"}, [*names, "shop-debezium.message", "shop.public.t"]

    def records(self, topic: str, table: str) -> list[ComparedRecord]:
        sides: Iterable[Side] = (self._world.native, self._world.debezium)
        return next((list(side.records) for side in sides if topic == f"{side.name}.public.t"), [])

    def facts(self) -> Facts:
        return {}
