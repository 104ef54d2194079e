"""How an application is asked to stop: by a signal, by a file, or by itself. Always between batches."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from cdc.process.clock import SYSTEM_CLOCK, SignalEvent
from cdc.process.errors import CdcError, Exit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

STOP_FILE = "spark.stop"
END_S = 60.0
"""How long an end may take in all: past it Spark's JVM is ended, and then this process."""
_LAST_S = 10.0
_SOON_S = 3.0
"""How long the process may go on by itself behind a call that was left behind."""


class SinkStop:
    """A wish to stop, once uttered for good. ``file``: a path whose appearance says so. It is removed when seen."""

    def __init__(self, file: Path | None = None) -> None:
        self.event: threading.Event = SignalEvent()
        self.reason = ""
        self.left_behind = False
        """Whether a call goes on that nobody waits for: a library's own threads may keep the process from ending."""
        self._file = file

    def ask(self, reason: str) -> None:
        """Stop at the next chance."""
        if not self.event.is_set():
            self.reason = reason
            self.event.set()

    @property
    def asked(self) -> bool:
        """Whether somebody has asked for the end. Looks for the file, and removes it."""
        if not self.event.is_set() and self._file is not None and self._file.exists():
            self._file.unlink(missing_ok=True)
            self.ask(f"the file {self._file} asked for it")
        return self.event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the wish, at most so long. Whether it is there."""
        self.event.wait(timeout_s)
        return self.asked

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask to stop while the body runs. A second one of them interrupts at once.

        Enter it after Spark, which takes SIGINT for itself. In another thread than the main one it does nothing:
        signals are then the business of the program around.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(number: int, _frame: FrameType | None) -> None:
            if self.event.is_set():
                raise KeyboardInterrupt
            self.ask(signal.Signals(number).name)

        before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def ended_in_time(session: SparkSession, stop: SinkStop, end_s: float = END_S) -> Iterator[None]:
    """From the wish to stop on the body has ``end_s``: then the JVM is killed, which ends every wait for it, and when
    that does not help this process ends with 69. The stores go on from their watermarks, as after any
    kill. Where a call was left behind, the process ends soon after the body, with the code that it would have ended
    with: a library's own threads are not waited for."""
    done = threading.Event()
    gateway: Any = session.sparkContext._gateway
    process = getattr(gateway, "proc", None)

    def watch() -> None:
        while not stop.event.wait(1.0):
            if done.is_set():
                return
        if done.wait(end_s):
            return
        log.error("end_takes_too_long", extra={"waited_s": end_s, "then": "Spark's JVM is killed"})
        if process is not None:
            process.kill()
        if not done.wait(_LAST_S):
            log.error("ended_by_force", extra={"waited_s": end_s + _LAST_S})
            os._exit(Exit.UNAVAILABLE)

    threading.Thread(target=watch, name="end-watch", daemon=True).start()
    code = Exit.BUG
    try:
        yield
        code = Exit.OK
    except CdcError as error:
        code = error.exit
        raise
    finally:
        done.set()
        if stop.left_behind:
            threading.Thread(target=_end_with, args=(code,), name="end-soon", daemon=True).start()


def _end_with(code: Exit) -> None:
    SYSTEM_CLOCK.sleep(_SOON_S)
    log.info("ended_without_a_call", extra={"exit": int(code)})
    os._exit(code)
