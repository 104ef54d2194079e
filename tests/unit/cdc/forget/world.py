"""A pipeline in memory for ``cdc forget``: a log, letters, stores and views that are told what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cdc.clock import ManualClock
from cdc.dead import DeadLetter, Why
from cdc.errors import CdcError, LogError, SinkError, SourceError
from cdc.forget.document_history import DocumentForm
from cdc.forget.holding import ForgetReport, Kept, Trace, state_word
from cdc.forget.key_history import SeenRecord
from cdc.forget.letter_history import SeenLetter
from cdc.forget.masked_key import asked_key
from cdc.forget.ports import ForgetPorts
from cdc.forget.rules import TopicOptions
from cdc.forget.run import Forget, ForgetPlan
from cdc.forget.typed_key import TypedKey
from cdc.mask_rules import NO_MASKS, Masks
from cdc.position import Position
from cdc.schema import TableSchema
from tests.killing import Steps
from tests.unit.connectors.postgres import written as w

SHAPE = w.table(w.column("id", "int4", 0), w.column("name", "text"), name="t")
VIEW = w.table(w.column("root", "int4", 0), name="v")
OPTIONS = TopicOptions.of({"cleanup.policy": "compact", "min.compaction.lag.ms": "60000"})
ROW = b'{"before":null,"after":{"id":42}}'


def record(
    key: str, value: bytes | None, lsn: int = 8, *, op: str = "c", seq: int = 1, partition: int = 0
) -> SeenRecord:
    """A record of the table, at a position."""
    said = {"pos": Position(1, lsn, seq).text().encode(), "op": op.encode(), "ver": b"1"}
    return SeenRecord(partition, lsn, lsn * 1000, key.encode(), value, said)


def row(number: int = 42, lsn: int = 8) -> SeenRecord:
    return record(f'{{"id":{number}}}', ROW, lsn)


def delete(number: int = 42, lsn: int = 16) -> SeenRecord:
    return record(f'{{"id":{number}}}', b'{"before":{"id":42},"after":null}', lsn, op="d", seq=2)


def tombstone(number: int = 42, lsn: int = 16) -> SeenRecord:
    return record(f'{{"id":{number}}}', None, lsn, op="d", seq=3)


@dataclass
class World:
    """``stores``: by place, what a look finds. An error in place of it is raised."""

    topics: dict[str, list[SeenRecord] | CdcError] = field(default_factory=lambda: {SHAPE.topic: []})
    state: list[SeenRecord] = field(default_factory=list)
    rows: set[str] = field(default_factory=set)
    dead: list[SeenLetter] = field(default_factory=list)
    stores: dict[str, list[Trace] | CdcError] = field(default_factory=dict)
    views: list[MemoryView] = field(default_factory=list)
    source: SourceError | None = None
    orders: list[tuple[DeadLetter, Why]] = field(default_factory=list)
    answering: bool = False
    cleaned: list[str] = field(default_factory=list)
    ends: list[Mapping[int, int]] = field(default_factory=list)
    asked_keys: list[Sequence[str]] = field(default_factory=list)
    clock: ManualClock = field(default_factory=lambda: ManualClock(20_000 * 10**9))
    options_of: TopicOptions = OPTIONS
    kept_keys: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)

    def forget(
        self,
        typed: str = "42",
        *,
        timeout_s: float = 0,
        trim: bool = False,
        shapes: Sequence[TableSchema] = (),
        renamed: Sequence[Sequence[TableSchema]] = (),
        steps: Steps | None = None,
        masks: Masks = NO_MASKS,
    ) -> Forget:
        known = list(shapes) or [SHAPE]
        key, also, note = asked_key(typed, known[-1], masks)
        wish = {"timeout_s": timeout_s, "trim_letters": trim, "note": note}
        plan = ForgetPlan(key=key, also=also, shapes=known, renamed=renamed, **wish)  # type: ignore[arg-type]
        ports = ForgetPorts(
            in_source=self.in_source,
            log=(steps or Steps()).over("log", self),
            requests="state",
            order=lambda asked, _timeout_s: self.answer(asked, steps or Steps()),
            stores={place: lambda place=place: self.opened(place) for place in self.stores},  # type: ignore[misc]
            fed=tuple(self.stores),
            views=self.views,
            may_nest=lambda topic: topic == VIEW.topic,
        )
        return Forget(plan, ports, self.clock)

    def answer(self, asked: Sequence[tuple[DeadLetter, Why]], steps: Steps) -> None:
        """Order, and be answered where a store feeds itself from here."""
        self.orders.extend(asked)
        steps.reach("behind order")
        if self.answering:
            released = [replace(letter, why=Why.RELEASED, value=None) for letter, _ in asked]
            self.dead += [SeenLetter(len(self.dead) + n, 2000, one) for n, one in enumerate(released)]

    def in_source(self, key: TypedKey) -> bool:
        if self.source is not None:
            raise self.source
        return key.text in self.rows

    def records(self, topic: str) -> Iterator[SeenRecord]:
        found = self.state if topic == "state" else self.topics[topic]
        if isinstance(found, CdcError):
            raise found
        yield from found

    def options(self, topic: str) -> TopicOptions:
        return self.options_of

    def letters(self) -> Sequence[SeenLetter]:
        return list(self.dead)

    def trim_letters(self, below: int) -> None:
        self.dead = [one for one in self.dead if one.offset >= below]

    @contextmanager
    def opened(self, place: str) -> Iterator[MemoryTraces]:
        found = self.stores[place]
        if isinstance(found, CdcError):
            raise found
        yield MemoryTraces(self, place, found)


@dataclass
class MemoryTraces:
    """:class:`cdc.forget.ports.StoreTraces` of one store of a world."""

    world: World
    place: str
    found: list[Trace]

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        self.world.asked_keys.append(keys)
        held = self.world.held.intersection(keys)
        return [*self.found, *(Trace(what="a row", kept=Kept.ROW, until="then") for _ in held)]

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        return self.found

    def shown(
        self, schema: TableSchema, position: Position | None, ends: Mapping[int, int], form: DocumentForm
    ) -> Iterable[Trace]:
        self.world.ends.append(ends)
        return ()

    def spellings(self, schema: TableSchema, same: Callable[[str], bool]) -> Iterable[str]:
        return filter(same, self.world.kept_keys)

    def clean(self, schema: TableSchema) -> None:
        self.world.cleaned.append(f"{self.place} {schema.table}")

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class MemoryView:
    """:class:`cdc.forget.ports.ForgetView`."""

    name: str = "orders"
    published: TableSchema | None = VIEW
    fence: tuple[int, int] | None = (1, 24)
    state: list[Trace] = field(default_factory=list)
    late: str | None = None
    form: DocumentForm = field(default_factory=DocumentForm)
    remembered: Position | None = None

    def deleted(self, table: TableSchema, key: TypedKey) -> Position | None:
        return self.remembered

    def reached(self) -> tuple[int, int] | None:
        return self.fence

    def in_state(self, table: TableSchema, key: TypedKey) -> Iterable[Trace]:
        return self.state


AWAY = SinkError("the store is away", hint="wait for it")
SILENT = LogError("no broker answers", hint="start one")


def states(report: ForgetReport) -> dict[str, str]:
    return {place: state_word(looked) for place, looked in report.places.items()}


def letter(
    offset: int,
    why: Why,
    *,
    key: str = '{"id":42}',
    sink: str = "cache",
    place: int = 5,
    order: str = "",
    topic: str = SHAPE.topic,
    lsn: int = 0,
) -> SeenLetter:
    said: tuple[tuple[str, bytes | None], ...] = (("order", order.encode()),) if order else ()
    said += (("pos", Position(1, lsn, 1).text().encode()),) if lsn else ()
    made = DeadLetter(
        sink=sink, why=why, topic=topic, partition=0, offset=place, reason="no", key=key.encode(),
        value=b"{}" if why.is_letter else None, headers=said,
    )  # fmt: skip
    return SeenLetter(offset, 1000, made)


def document(root: int, lsn: int, value: bytes | None = b"{}") -> SeenRecord:
    return record(f'{{"root":{root}}}', value, lsn)


def in_view(world: World, place: str = "log") -> list[Trace]:
    looked = world.forget().look().places[f"view orders, {place}"]
    assert isinstance(looked, list)
    return looked
