"""The stack's ports: those of the compose file, or free ones."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable

from cdc.errors import ConfigError
from cdc.stack.part import LOOPBACK

DEFAULT_PORTS: dict[str, int] = {
    "postgres": 5432,
    "kafka": 9092,
    "kafka_controller": 9093,
    "redis": 6379,
    "opensearch": 9200,
    "opensearch_transport": 9300,
    "connect": 8083,
}

# Below the kernel's range for outgoing connections: a client's own port never takes a server's place.
_FREE = range(20_000, 32_000)
# OpenSearch's runner refuses a higher one.
_FREE_OPENSEARCH = range(9_201, 9_300)
_SHARES = 8


def free_ports(names: Iterable[str] = DEFAULT_PORTS, *, share: int | None = None) -> dict[str, int]:
    """A free port for every name, chosen at random so that two stacks started at once seldom meet.

    ``share``: a number from 0 on. Stacks with different ones, up to eight, never choose the same port for OpenSearch,
    which has a hundred ports alone and may be started long after the choice. Raises ConfigError when a range has no
    free port.
    """
    chosen: dict[str, int] = {}
    for name in names:
        candidates = list(_FREE_OPENSEARCH if name == "opensearch" else _FREE)
        if name == "opensearch" and share is not None:
            candidates = candidates[share % _SHARES :: _SHARES]
        random.SystemRandom().shuffle(candidates)
        free = (port for port in candidates if port not in chosen.values() and _is_free(port))
        port = next(free, None)
        if port is None:
            raise ConfigError(f"no free port for {name} between {candidates[0]} and {candidates[-1]}")
        chosen[name] = port
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
