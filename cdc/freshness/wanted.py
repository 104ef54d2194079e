"""The tokens that a store is waited for, and their answers: pure. One look at the store serves all who wait."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import TIMEOUT_MAX
from typing import NamedTuple

from cdc.freshness.rules import not_shown, require_whole, shows, speaks_for
from cdc.process.errors import CdcError, DifferenceFound, UsageError
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.tokens import Standing, Token, standing
from cdc.record.topic_names import VIEW_SCHEMA, TableName, table_topic, view_topic

_USELESS = (Standing.LOST, Standing.STRANGE)
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
        return found is Standing.SHOWN

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
