"""Each part is asked in a thread of its own, for so long at most: one that hangs hides no other."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Generic, TypeVar

from cdc.clock import Clock
from cdc.errors import CdcError, Exit, Retry
from cdc.found import Unknown, look

T = TypeVar("T")
PART_S = 15.0
"""How long a look waits for a part. Each client gives up a server that is away before that, and says why."""
_HINT = "a part is asked again when it has ended its last answer: a new cdc status asks at once"


class AskedPart(Generic[T]):
    """A question that a part was asked. ``at_s``: when it was answered, by the clock of the parts."""

    def __init__(self, who: str, question: Callable[[], T], limit_s: float, clock: Clock) -> None:
        self._who, self._question, self._limit_s, self._clock = who, question, limit_s, clock
        self._ended = Event()
        self._found: T | Unknown
        self._bug: BaseException | None = None
        self._began_s = self.at_s = clock.monotonic()
        # Of those that hang none may hold the end of the process.
        Thread(target=self._ask, name=f"status {who}", daemon=True).start()

    @property
    def hangs(self) -> bool:
        """Whether it has no answer yet."""
        return not self._ended.is_set()

    def wait(self) -> T | Unknown:
        """The answer. Unknown where there is none within the limit, which counts from the question on."""
        left_s = self._limit_s - (self._clock.monotonic() - self._began_s)
        if not self._ended.wait(max(0.0, left_s)):
            return self.late()
        if self._bug is not None:
            raise self._bug
        return self._found

    def late(self) -> Unknown:
        """The answer of a part that gives none."""
        words = f"{self._who} has not answered in {self._limit_s:g} s"
        return Unknown(CdcError(words, hint=_HINT, retry=Retry.LATER, exit=Exit.UNAVAILABLE))

    def _ask(self) -> None:
        try:
            self._found = look(self._question)
        except BaseException as bug:  # raised where it is waited for
            self._bug = bug
        self.at_s = self._clock.monotonic()
        self._ended.set()


class AskedParts:
    """Asks parts by their names, from look to look. One that hangs is asked nothing more until it has answered, so that
    it has one thread and no more. Its answer is of no use then: it is too old."""

    def __init__(self, clock: Clock, limit_s: float = PART_S) -> None:
        self._clock, self._limit_s = clock, limit_s
        self._asked: dict[str, AskedPart[Any]] = {}

    def ask(self, part: str, who: str, question: Callable[[], T]) -> Callable[[], T | Unknown]:
        """Ask, and return at once. The answer comes of the function that is returned, see :meth:`AskedPart.wait`."""
        if self.hangs(part):
            return self._asked[part].late
        asked = self._asked[part] = AskedPart(who, question, self._limit_s, self._clock)
        return asked.wait

    def hangs(self, *parts: str) -> bool:
        """Whether one of these has not ended its last answer."""
        return any(part in self._asked and self._asked[part].hangs for part in parts)

    def answered_s(self) -> dict[str, float]:
        """When each part last answered."""
        return {part: asked.at_s for part, asked in self._asked.items() if not asked.hangs}

    def stamp(self, part: str, at_s: float) -> None:
        """Take an earlier answer of a part for its last one."""
        self._asked[part].at_s = at_s
