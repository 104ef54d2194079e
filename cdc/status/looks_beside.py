"""Looks at a pipeline beside a command that does something else meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Self

from cdc.clock import Clock
from cdc.status.live_looks import LiveLook, LiveLooks
from cdc.status.rules import Status


class LooksBeside:
    """Looks each ``every_s`` seconds in a thread, and tells of each look, until its context is left. The last look has
    ended then, and ``looks`` may be gone on with, unless an error leaves the context: that waits for no look."""

    def __init__(
        self,
        look: Callable[[], Status],
        tell: Callable[[LiveLook], None],
        looks: LiveLooks,
        every_s: float,
        clock: Clock,
    ) -> None:
        self._look, self._tell, self._looks, self._every_s, self._clock = look, tell, looks, every_s, clock
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="status beside", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopped.set()
        if kind is None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._tell(self._looks.look(self._look, self._clock))
            self._stopped.wait(self._every_s)
