"""Waiting for a socket beneath its library, where the library's own waiting would cost or send too much."""

from __future__ import annotations

import select


def readable(socket: int, timeout_s: float | None) -> bool:
    """Whether something, or the connection's end, is there to be read within ``timeout_s`` (None: however long).

    By poll(2): select(2) takes no descriptor above 1023, and a process of many partitions, files and sessions has
    such ones. A closed descriptor counts as readable: the read then gets the error.
    """
    waiting = select.poll()
    waiting.register(socket, select.POLLIN)
    return bool(waiting.poll(None if timeout_s is None else timeout_s * 1000))
