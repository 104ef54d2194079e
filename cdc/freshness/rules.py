"""Read your own write: wait until a store shows an LSN. One look at the store serves all who wait. Pure.

The token is ``pg_current_wal_insert_lsn()``, taken after the commit: ``pg_current_wal_lsn()`` lies behind one's
own commit under synchronous_commit=off. A :class:`cdc.record.tokens.Token` names the server as well, and is
judged by the store's watermark alone. A bare LSN is taken as one of the pipeline's present epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import TIMEOUT_MAX
from typing import NamedTuple, Protocol

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, DifferenceFound, UsageError
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.tokens import Token, TokenRelation, sentence, standing
from cdc.record.topic_names import VIEW_SCHEMA, TableName, table_topic, view_topic

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.2
NUDGE_AFTER_S = 1.0


class ReadsWatermarks(Protocol):
    """The part of ``sinks.contract.port.Watermarks`` that is used here."""

    def read(self) -> Watermark | None:
        """The store's watermark. None for an empty store. SinkError when it does not answer."""


TokenEpoch = Callable[[int], int | None]
"""Finds the epoch of a token, for a store whose watermark is in the epoch that it gets. None where any counts."""


def wait_until_shown(
    sink: str,
    watermarks: ReadsWatermarks,
    lsn: int,
    *,
    epoch: TokenEpoch | int | None = None,
    timeout_s: float = 30.0,
    nudge: Callable[[], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Watermark:
    """Return the store's watermark once it shows every change committed below ``lsn``.

    ``epoch``: of the token, or what finds it. A watermark of another one does not count: LSNs start over with an
    epoch. ``nudge`` is called once when a second has passed: a quiet server writes nothing that would carry the log
    past a token at its very end. Raises DifferenceFound when ``timeout_s`` has passed, and SinkError when the
    store cannot be asked.
    """

    def late(watermark: Watermark | None) -> DifferenceFound:
        stands = f"stands at {Lsn(watermark.lsn)}" if watermark is not None else "has no watermark yet"
        return DifferenceFound(
            f"{sink} {stands}; {Lsn(lsn)} was not reached in {timeout_s:g} s",
            hint="cdc status shows where it is held up; cdc run and cdc sink have to be running",
        )

    def shown(mark: Watermark) -> bool:
        return shows(mark, lsn, epoch(mark.epoch) if callable(epoch) else epoch)

    return _wait(watermarks, shown, late, timeout_s=timeout_s, nudge=nudge, clock=clock)


def wait_until_token_shown(
    sink: str,
    watermarks: ReadsWatermarks,
    token: Token,
    *,
    timeout_s: float = 30.0,
    nudge: Callable[[], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Watermark:
    """The same for a token that names its server. A watermark of another lineage does not count, whatever its LSN.

    Raises as :func:`wait_until_shown`, and at once for a commit that a promotion left behind.
    """

    def late(watermark: Watermark | None) -> DifferenceFound:
        return not_shown(sink, token, watermark, timeout_s)

    def shown(mark: Watermark) -> bool:
        found = standing(token, mark)
        if found is TokenRelation.LOST:
            raise not_shown(sink, token, mark, 0.0)
        return found is TokenRelation.SHOWN

    return _wait(watermarks, shown, late, timeout_s=timeout_s, nudge=nudge, clock=clock)


def not_shown(sink: str, token: Token, watermark: Watermark | None, waited_s: float) -> DifferenceFound:
    """The error for a store that does not show a token."""
    waited = f"; waited {waited_s:g} s" if waited_s else ""
    return DifferenceFound(f"{sentence(sink, token, watermark)}{waited}", hint=_HINTS[standing(token, watermark)])


_RUNNING = "cdc status shows where it is held up; cdc run and cdc sink have to be running"
_HINTS = {
    TokenRelation.SHOWN: "",
    TokenRelation.BEHIND: _RUNNING,
    TokenRelation.EMPTY: _RUNNING,
    TokenRelation.UNNAMED: "cdc run and cdc sink name it from their first record on; Debezium's topics have no server, "
    "so use cdc wait with the LSN alone",
    TokenRelation.PROMOTION: "cdc run has to go on with the promoted server first",
    TokenRelation.LOST: "look in Postgres whether the commit is there, and write again what is not",
    TokenRelation.STRANGE: "read from Postgres, and take a new token on the server that the pipeline follows",
}


def wait_until_spoken_for(
    sink: str, watermarks: ReadsWatermarks, topic: str, *, timeout_s: float = 30.0, clock: Clock = SYSTEM_CLOCK
) -> Watermark:
    """Return the store's watermark once its LSN is that of a topic's table or view as well.

    Raises DifferenceFound when ``timeout_s`` has passed, and SinkError when the store cannot be asked.
    """

    def late(watermark: Watermark | None) -> DifferenceFound:
        hold = watermark.held.get(topic) if watermark is not None else None
        said = hold.sentence(sink) if hold is not None else f"{sink} does not read the topic {topic} yet"
        return DifferenceFound(f"{said}; waited {timeout_s:g} s", hint="cdc status shows where it is held up")

    def spoken_for(mark: Watermark) -> bool:
        return speaks_for(mark, topic)

    return _wait(watermarks, spoken_for, late, timeout_s=timeout_s, nudge=None, clock=clock)


def _wait(
    watermarks: ReadsWatermarks,
    shown: Callable[[Watermark], bool],
    late: Callable[[Watermark | None], DifferenceFound],
    *,
    timeout_s: float,
    nudge: Callable[[], None] | None,
    clock: Clock,
) -> Watermark:
    started, pause_s = clock.monotonic(), FIRST_PAUSE_S
    while True:
        watermark = watermarks.read()
        if watermark is not None and shown(watermark):
            return watermark
        waited_s = clock.monotonic() - started
        if waited_s >= timeout_s:
            raise late(watermark)
        if nudge is not None and waited_s >= NUDGE_AFTER_S:
            nudge()
            nudge = None
        clock.sleep(min(pause_s, timeout_s - waited_s))
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)


def require_whole(sink: str, watermark: Watermark) -> None:
    """Return where a store shows every table up to its LSN.

    Raises DifferenceFound when a table is set aside: the log lacks changes of it, so the store shows less.
    """
    if watermark.aside:
        words = list(watermark.aside.values())
        more = f", and {len(words) - 1} more" if len(words) > 1 else ""
        raise DifferenceFound(
            f"{sink} shows all tables up to {Lsn(watermark.lsn)} but these: {words[0]}{more}",
            hint="cdc status names each table that is set aside, and why",
        )


def speaks_for(watermark: Watermark, topic: str) -> bool:
    """Whether the LSN of a watermark is that of a topic's table or view as well."""
    return topic in watermark.topic_ids and topic not in watermark.held


def shows(watermark: Watermark, lsn: int, epoch: int | None) -> bool:
    """Whether a store at this watermark shows all below ``lsn`` of an epoch. None: of the store's own."""
    return (epoch is None or watermark.epoch == epoch) and watermark.lsn >= lsn


_USELESS = (TokenRelation.LOST, TokenRelation.STRANGE)
_UNREAD = (
    "read that table from Postgres; check its name and the sink's tables; a new table is read within a minute or so"
)


class NotShown(DifferenceFound):
    """The store does not show the token, or not of every table that is asked for. Read from Postgres."""


class WaitUseless(NotShown):
    """The same, raised at once: more time would not change it, or only an operator's act would."""


class EpochLsn(NamedTuple):
    """A bare LSN, of an epoch of the pipeline: for sources that name no server."""

    epoch: int
    lsn: Lsn

    def __str__(self) -> str:
        return str(self.lsn)


def named_tables(tables: Iterable[str]) -> frozenset[str]:
    """The tables that are read, by their names. UsageError for one text in place of several, and for a name without
    a schema: a table that nobody knows would count as shown."""
    found = frozenset([tables]) if isinstance(tables, str) else frozenset(tables)
    if isinstance(tables, str) or not all(_is_name(table) for table in found):
        raise UsageError(
            "tables are no list of names with a schema", hint='write tables=["public.orders"], or ["view.NAME"]'
        )
    return found


def bounded(timeout_s: float) -> float:
    """Seconds to wait. UsageError for fewer than none, for no number and for more than a thread can wait."""
    if not 0 <= timeout_s <= TIMEOUT_MAX:
        raise UsageError("timeout_s is no number of seconds", hint="0 looks once; 2.0 waits for two seconds at most")
    return timeout_s


def _is_name(table: object) -> bool:
    return isinstance(table, str) and all(_parts(table))


def _parts(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, name


def topics_of(table: str, topics: Iterable[str]) -> list[str]:
    """Those of these topics that are the table's or the view's. A topic's own name is one of its table as well."""
    name = TableName(*_parts(table))
    return [topic for topic in topics if topic == table or _is_of(name, topic)]


def _is_of(name: TableName, topic: str) -> bool:
    pipeline, _, _ = topic.partition(".")
    if topic == table_topic(pipeline, name):
        return True
    _, _, generation = topic.rpartition(".")
    view = name.schema == VIEW_SCHEMA and generation.isdecimal()
    return view and topic == view_topic(pipeline, name.table, int(generation))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A token that a store has to show, or an LSN of one of the pipeline's epochs.

    ``tables``: as ``schema.table`` or ``view.NAME``, the ones that count. Empty for every table of the store.
    ``once``: the next look decides, whatever it finds.
    """

    store: str
    token: Token | EpochLsn
    tables: frozenset[str] = frozenset()
    once: bool = False

    def met(self, watermark: Watermark | None) -> bool:
        """Whether the store shows the token, of each table that counts. WaitUseless where waiting is of no use: a
        promotion left the commit behind, the store shows another server, a table that counts is held by the store, or
        the log lacks changes of it."""
        if watermark is None or not self._reached(watermark):
            return False
        counts = {topic for topics in self._read(watermark).values() for topic in topics}
        for topic, hold in watermark.held.items():
            if not self.tables or topic in counts or hold.table in self.tables:
                raise WaitUseless(hold.sentence(self.store), hint="read that table from Postgres; cdc status shows why")
        aside = {topic: why for topic, why in watermark.aside.items() if not self.tables or topic in counts}
        try:
            require_whole(self.store, replace(watermark, aside=aside))
        except DifferenceFound as lacking:
            raise WaitUseless(lacking.message, hint=lacking.hint) from None
        return not self._unread(watermark)

    def _read(self, watermark: Watermark) -> dict[str, list[str]]:
        """By table that counts: its topics among those that the store reads. Empty where every table counts."""
        return {table: topics_of(table, watermark.topic_ids) for table in self.tables}

    def _unread(self, watermark: Watermark) -> list[str]:
        """The tables that count, and that the store does not read: its LSN says nothing of them."""
        return sorted(
            table
            for table, topics in self._read(watermark).items()
            if not topics or not all(speaks_for(watermark, topic) for topic in topics)
        )

    def _reached(self, watermark: Watermark | None) -> bool:
        """Whether the store has come so far."""
        if not isinstance(self.token, Token):
            return watermark is not None and shows(watermark, self.token.lsn, self.token.epoch)
        found = standing(self.token, watermark)
        if found in _USELESS:
            refused = not_shown(self.store, self.token, watermark, 0.0)
            raise WaitUseless(refused.message, hint=refused.hint)
        return found is TokenRelation.SHOWN

    def refusal(self, watermark: Watermark | None, waited_s: float) -> NotShown:
        """The error for a store that is at this watermark after so many seconds."""
        waited = f"; waited {waited_s:g} s"
        with suppress(WaitUseless):
            if watermark is not None and self._reached(watermark) and (unread := self._unread(watermark)):
                return NotShown(f"{self.store} does not read {', '.join(unread)}{waited}", hint=_UNREAD)
        if isinstance(self.token, Token):
            error = not_shown(self.store, self.token, watermark, waited_s)
            return NotShown(error.message, hint=error.hint)
        if watermark is None:
            return NotShown(f"{self.store} has no watermark yet{waited}")
        stands = f"{self.store} stands at {Lsn(watermark.lsn)} of epoch {watermark.epoch}"
        return NotShown(f"{stands}, and the LSN is {self.token.lsn} of epoch {self.token.epoch}{waited}")


@dataclass(eq=False, slots=True)
class TokenWait:
    """Somebody who waits. ``answer``: the watermark that shows the token, once there is one. ``owner``: on whose
    behalf. ``seen``: what the newest look behind the question found, where ``looked`` says that there was one."""

    wanted: Wanted
    owner: object = None
    answer: Future[Watermark] = field(default_factory=Future)
    looked: bool = False
    seen: Watermark | None = None

    def late(self, waited_s: float) -> NotShown:
        """The error for a store that did not show it in so many seconds."""
        if self.looked:
            return self.wanted.refusal(self.seen, waited_s)
        return NotShown(
            f"{self.wanted.store} has not answered within {waited_s:g} s",
            hint="read from Postgres; check the store's address",
        )

    def look(self, watermark: Watermark | None) -> None:
        """The store is at this watermark: answer, if that decides it."""
        self.looked, self.seen = True, watermark
        try:
            met = self.wanted.met(watermark)
        except WaitUseless as refusal:
            self.fail(refusal)
            return
        # It may have been cancelled in this moment.
        with suppress(InvalidStateError):
            if met and watermark is not None:
                self.answer.set_result(watermark)
            elif self.wanted.once:
                self.answer.set_exception(self.late(0.0))

    def fail(self, failure: CdcError) -> None:
        """It will not be answered."""
        with suppress(InvalidStateError):
            self.answer.set_exception(failure)


@dataclass(eq=False)
class TokenWaits:
    """All who wait for one store. Not for several threads at a time."""

    _asked: dict[TokenWait, None] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._asked)

    def add(self, wait: TokenWait) -> None:
        """One more."""
        self._asked[wait] = None

    def drop(self, wait: TokenWait) -> None:
        """One waits no longer. Again is nothing."""
        wait.answer.cancel()
        self._asked.pop(wait, None)

    def settle(self, watermark: Watermark | None) -> None:
        """The store is at this watermark: answer those for whom that decides it."""
        for wait in self._asked:
            wait.look(watermark)
        self._asked = {wait: None for wait in self._asked if not wait.answer.done()}

    def fail(self, failure: CdcError, owner: object = None) -> None:
        """The store could not be asked. Everybody hears why, or those of one owner."""
        for wait in [wait for wait in self._asked if owner is None or wait.owner is owner]:
            del self._asked[wait]
            wait.fail(failure)
