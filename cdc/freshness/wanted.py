"""The tokens that a store is waited for, and their answers: pure. One look at the store serves all who wait."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

from cdc.errors import CdcError, DifferenceFound
from cdc.freshness.rules import not_shown, require_whole
from cdc.lsn import Lsn
from cdc.progress import Watermark
from cdc.tokens import Standing, Token, standing


class NotShown(DifferenceFound):
    """The store does not show the token, or not of every table that is asked for. Read from Postgres."""


class WaitUseless(NotShown):
    """The same, raised at once: more time would not change it, or only an operator's act would."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A token that a store has to show, or a bare LSN, which counts within the store's own lineage.

    ``tables``: as ``schema.table`` or ``view.NAME``, the ones that count. Empty for every table of the store.
    """

    store: str
    token: Token | Lsn
    tables: frozenset[str] = frozenset()

    def met(self, watermark: Watermark | None) -> bool:
        """Whether the store shows the token. WaitUseless where waiting is of no use: a promotion left the commit
        behind, a table that counts is held by the store, or the log lacks changes of a table."""
        if not self._reached(watermark) or watermark is None:
            return False
        for hold in watermark.held.values():
            if not self.tables or hold.table in self.tables:
                raise WaitUseless(hold.sentence(self.store), hint="read that table from Postgres; cdc status shows why")
        try:
            require_whole(self.store, watermark)
        except DifferenceFound as aside:
            raise WaitUseless(aside.message, hint=aside.hint) from None
        return True

    def _reached(self, watermark: Watermark | None) -> bool:
        if not isinstance(self.token, Token):
            return watermark is not None and watermark.lsn >= self.token
        found = standing(self.token, watermark)
        if found is Standing.LOST:
            lost = not_shown(self.store, self.token, watermark, 0.0)
            raise WaitUseless(lost.message, hint=lost.hint)
        return found is Standing.SHOWN

    def refusal(self, watermark: Watermark | None, waited_s: float) -> NotShown:
        """The error for a store that is at this watermark after so many seconds."""
        if isinstance(self.token, Token):
            error = not_shown(self.store, self.token, watermark, waited_s)
            return NotShown(error.message, hint=error.hint)
        stands = f"stands at {Lsn(watermark.lsn)}" if watermark is not None else "has no watermark yet"
        return NotShown(f"{self.store} {stands}, and the LSN is {self.token}; waited {waited_s:g} s")


@dataclass(eq=False)
class TokenWaits:
    """All who wait for one store. Not for several threads at a time."""

    _asked: list[tuple[Wanted, Future[Watermark]]] = field(default_factory=list)

    def __len__(self) -> int:
        """How many wait. Those who gave up count until the next look."""
        return len(self._asked)

    def add(self, wanted: Wanted) -> Future[Watermark]:
        """One more. The answer is the watermark that shows the token. Cancel it to wait no longer."""
        answer: Future[Watermark] = Future()
        self._asked.append((wanted, answer))
        return answer

    def settle(self, watermark: Watermark | None) -> None:
        """The store is at this watermark: answer those for whom that decides it."""
        left = []
        for wanted, answer in self._asked:
            if answer.done():
                continue
            try:
                met = wanted.met(watermark)
            except WaitUseless as refusal:
                _fail(answer, refusal)
                continue
            if not met:
                left.append((wanted, answer))
            elif watermark is not None:
                with suppress(InvalidStateError):
                    answer.set_result(watermark)
        self._asked = left

    def fail(self, failure: CdcError) -> None:
        """The store could not be asked. Everybody hears why."""
        asked, self._asked = self._asked, []
        for _, answer in asked:
            _fail(answer, failure)


def _fail(answer: Future[Watermark], failure: CdcError) -> None:
    # It may have been cancelled in this moment.
    with suppress(InvalidStateError):
        answer.set_exception(failure)
