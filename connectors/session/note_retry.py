"""How long a session waits for brokers that do not answer: as long as it lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cdc.windows import Closed


class NoteRetry:
    """Called again and again while a session's note is not taken. Any thread. Raises to give up: what ``turn``
    raises, Closed when the session is over."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._over = threading.Event()

    def __call__(self) -> None:
        if self._over.is_set():
            raise Closed
        self._turn()

    def end(self) -> None:
        """The session is over."""
        self._over.set()
