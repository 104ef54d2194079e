"""How an application is asked to stop: by a signal, by a file, or by itself; always between batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

STOP_FILE = "spark.stop"


class Stop:
    """A wish to stop, once uttered for good. ``file``: a path whose appearance says so; it is removed when seen."""

    def __init__(self, file: Path | None = None) -> None:
        self.event = threading.Event()
        self.reason = ""
        self._file = file

    def ask(self, reason: str) -> None:
        """Stop at the next chance."""
        if not self.event.is_set():
            self.reason = reason
            self.event.set()

    @property
    def asked(self) -> bool:
        if not self.event.is_set() and self._file is not None and self._file.exists():
            self._file.unlink(missing_ok=True)
            self.ask(f"the file {self._file} asked for it")
        return self.event.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the wish, at most so long; whether it is there."""
        self.event.wait(timeout_s)
        return self.asked

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask to stop while the body runs; a second one of them interrupts at once.

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
