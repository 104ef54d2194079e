"""A question that a thread of its own asks again and again. Nobody waits for it, and nothing it meets ends it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from cdc.clock import Clock
from cdc.errors import CdcError
from cdc.windows import Closed

log = logging.getLogger(__name__)

LOOK_S = 3.0
_REST = 10
"""A look rests for so many times the time it took, so that thousands of topics cost a tenth of a core at most."""


class RepeatedLook:
    """``look``: asks once, and returns after how many seconds to ask again. Raises Closed at the session's end.
    ``over``: ends it between two looks. ``done``: called by its thread at the end. ``again_s``: the rest behind a look
    that failed."""

    def __init__(
        self,
        name: str,
        look: Callable[[], float],
        over: threading.Event,
        clock: Clock,
        *,
        done: Callable[[], None] = lambda: None,
        again_s: float = LOOK_S,
    ) -> None:
        self._name = name
        self._look = look
        self._over = over
        self._clock = clock
        self._done = done
        self._again_s = again_s
        self._told = False
        self._thread = threading.Thread(target=self._run, name=f"cdc-look-{name}", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end, once ``over`` is set. Whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        wait_s = 0.0
        while not self._over.wait(wait_s):
            begun_s = self._clock.monotonic()
            wait_s = self._again_s
            try:
                wait_s = self._look()
                # A look that asks much rests. One that was not answered has asked nothing yet.
                wait_s = max(wait_s, _REST * (self._clock.monotonic() - begun_s) if wait_s >= LOOK_S else 0)
                self._told = False
            except Closed:
                break
            except CdcError as error:
                self._unanswered(error.message)
            except (psycopg.Error, OSError) as error:
                self._unanswered(type(error).__name__)
            except Exception:
                # A thread that ended here would leave the last answers standing for good.
                log.exception("look_failed")
        self._done()

    def _unanswered(self, why: str) -> None:
        if not self._told and not self._over.is_set():
            self._told = True
            log.warning("look_unanswered", extra={"look": self._name, "why": why})
