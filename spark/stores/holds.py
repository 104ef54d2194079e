"""Tables that a store holds: its place for them cannot take their newest shape or any row, so they wait and all else
flows.

While a table is held, its topic is none of the store's: the query skips its records, its offsets in the watermark
stay where they were, and the watermark names it. When it is free it is read again from there, and named
until its rows have come as far as the LSN that the others have reached: an LSN never goes back.

A table is tried again now and then, because what was in its way (an index made read-only by a full disk, a constraint)
goes without a word. One that was held for longer than the topics keep deletes is filled anew then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from cdc.process.clock import Clock
from cdc.process.errors import CdcError, Exit, Retry
from cdc.record.progress import Hold, Watermark
from cdc.record.schema import TableSchema
from sinks.contract.port import CannotCarry, Sink
from sinks.contract.table_places import SchemaBook
from spark.records.ports import LogQuestions, SinkTopics
from spark.stores.watermark import Claim, LogView

log = logging.getLogger(__name__)

_FIRST_TRY_S, _LONGEST_TRY_S = 10.0, 600.0


class HeldAgain(CdcError):
    """The place of a held table takes its shape again: the query begins anew with it."""

    exit = Exit.UNAVAILABLE
    retry = Retry.NOW


@dataclass
class _Try:
    """A held table that is tried again: the shape that was refused, the time of the next try, how many there were."""

    shape: TableSchema
    due_s: float
    times: int = 1


class Holds:
    """The tables that one store holds now. On the store's own thread but for :meth:`outgrown`."""

    def __init__(self, sink: str, clock: Clock) -> None:
        self._sink = sink
        self._clock = clock
        self.now: Mapping[str, Hold] = {}
        """topic -> why. Replaced, never changed."""
        self._tries: dict[str, _Try] = {}

    def begin(self) -> None:
        """All over again: it is found out anew. How often a table was tried stays known."""
        self.now = {}

    def refuse(self, refusal: CannotCarry, book: SchemaBook) -> None:
        """Hold the table of a refusal. Raise the refusal where the table is held already or unknown.

        It is tried again after 10 s, and after twice as long each time, 10 minutes at most.
        """
        newest = next((shapes[0] for shapes in book.tables() if shapes[0].table == refusal.table), None)
        if newest is None or newest.topic in self.now:
            raise refusal
        self._add(newest, refusal)
        log.warning("table_held", extra={"sink": self._sink, "table": str(newest.table), "why": refusal.message})

    def _add(self, newest: TableSchema, refusal: CannotCarry) -> None:
        before = self._tries.get(newest.topic)
        times = before.times + 1 if before is not None else 1
        wait_s = min(_LONGEST_TRY_S, _FIRST_TRY_S * 2 ** min(times - 1, 10))
        self._tries[newest.topic] = _Try(newest, self._clock.monotonic() + wait_s, times)
        self.now = {**self.now, newest.topic: Hold(table=str(newest.table), reason=refusal.message)}

    def outgrown(self, shapes: Callable[[], Iterable[TableSchema]]) -> bool:
        """Whether a held table has a newer shape than the one that it is held for."""
        held_at = {topic: one.shape.version for topic, one in dict(self._tries).items() if topic in self.now}
        return bool(held_at) and any(shape.version > held_at.get(shape.topic, shape.version) for shape in shapes())

    def try_again(self, prepare: Callable[[TableSchema], None], facts: LogQuestions) -> None:
        """Try the tables whose turn it is. HeldAgain when the store takes the shape of one: its records come next.

        ``prepare`` raises CdcError where the store does not take a shape. ``facts``: says whether a table's rows stand
        under one key.
        """
        now_s = self._clock.monotonic()
        for topic, one in list(self._tries.items()):
            if topic not in self.now or now_s < one.due_s:
                continue
            try:
                require_key(one.shape, facts)
                prepare(one.shape)
            except CannotCarry as refusal:
                self._add(one.shape, refusal)
            except CdcError:
                return
            else:
                raise HeldAgain(f"{one.shape.table}, which {self._sink} holds, is tried again")


def make_room(sink: Sink, versions: list[TableSchema], facts: LogQuestions) -> None:
    """Make a table's place ready for all its shapes, the newest first. CannotCarry where it cannot become that."""
    newest = versions[0]
    if any(shape.key_form != newest.key_form for shape in versions):
        require_key(newest, facts)
    for shape in versions:
        sink.prepare(shape, older=shape is not newest)


def require_key(newest: TableSchema, facts: LogQuestions) -> None:
    """CannotCarry where the topic of a table holds rows under a former key that nothing removes: Debezium goes on with
    the new one. LogError when the broker does not answer."""
    if newest.topic in facts.rekeyed():
        raise CannotCarry(
            f"{newest.table}: its key is another one now, and rows under the former key would stay",
            hint="cdc connect resnapshot, then cdc rebuild of each sink: every table is read again, into new topics",
            table=newest.table,
        )


def claim(
    view: LogView, before: Watermark | None, at: Claim, topics: SinkTopics, holds: Mapping[str, Hold], now_ms: int = 0
) -> Watermark:
    """The watermark of a store that shows everything below ``at`` of its topics, but for those that it holds."""
    free = topics.without(holds)
    here = Claim({topic: parts for topic, parts in at.offsets.items() if topic in free.ids}, at.read_at_s)
    views = view.views_left(before, here, free)
    behind = _catching_up(view, before, here, free.without(free.views))
    shown = view.claim(before, here, free.without({*behind, *views.unheeded, *topics.streams}), now_ms)
    offsets = {topic: parts for topic, parts in _offsets(before).items() if topic in holds}
    began = {topic: replace(hold, since_ms=_since_ms(before, topic, now_ms)) for topic, hold in holds.items()}
    held = {**behind, **views.named, **began}
    return replace(shown, offsets={**offsets, **here.offsets}, topic_ids=dict(topics.ids), held=held)


def _since_ms(before: Watermark | None, topic: str, now_ms: int) -> int:
    return (before.sure_ms(topic) if before is not None else 0) or now_ms


def _catching_up(view: LogView, before: Watermark | None, here: Claim, free: SinkTopics) -> dict[str, Hold]:
    """Tables that were held and do not show all below the store's LSN yet."""
    if before is None:
        return {}
    released = {topic: replace(hold, reason="") for topic, hold in before.held.items() if topic in free.ids}
    if not released:
        return {}
    whole = view.claim(Watermark(epoch=before.epoch, lsn=0), here, free)
    return {} if (whole.epoch, whole.lsn) >= (before.epoch, before.lsn) else released


def _offsets(mark: Watermark | None) -> Mapping[str, Mapping[int, int]]:
    return mark.offsets if mark is not None else {}
