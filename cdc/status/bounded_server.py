"""A server whose readers cannot hold it: so many at once, and so long each."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock
from typing import Any

from cdc.answering import Answering, ThreadEach
from cdc.clock import SYSTEM_CLOCK

MOST = 64
"""Connections at once. One more is closed without an answer: a browser asks again."""
READER_S = 10.0
"""A reader who takes longer for his request and its answer is left."""


class BoundedServer(ThreadEach):
    """Looks after its connections about twice a second, as :meth:`serve_forever` calls it."""

    def __init__(self, address: tuple[str, int], handler: type[Answering]) -> None:
        self._open: dict[socket.socket, float] = {}
        self._lock = Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, where there is room for it."""
        with self._lock:
            full = len(self._open) >= MOST
            if not full:
                self._open[request] = SYSTEM_CLOCK.monotonic() + READER_S
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections of those who are slow: one byte each few seconds is no silence."""
        now_s = SYSTEM_CLOCK.monotonic()
        with self._lock:
            slow = [request for request, until_s in self._open.items() if until_s < now_s]
        for request in slow:
            # Its thread is in the middle of a read or a write, and ends by it.
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
