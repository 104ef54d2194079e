"""The stack's ports: those of the compose file, or free ones."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable, Sequence

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

    ``share``: a number from 0 on. Stacks with different ones, up to eight, never choose the same port, and one without
    a share takes theirs last: a server may be started long after the choice. Raises ConfigError when a range has no
    free port.
    """
    chosen: dict[str, int] = {}
    for name in names:
        ports = _FREE_OPENSEARCH if name == "opensearch" else _FREE
        free = (port for port in _candidates(ports, share) if port not in chosen.values() and _is_free(port))
        port = next(free, None)
        if port is None:
            raise ConfigError(f"no free port for {name} between {ports[0]} and {ports[-1]}")
        chosen[name] = port
    return chosen


def _candidates(ports: range, share: int | None) -> list[int]:
    number = _SHARES if share is None else share % _SHARES
    own = ports[number :: _SHARES + 1]
    others = [port for port in ports if port not in own] if share is None else []
    return [*_drawn(own), *_drawn(others)]


def _drawn(ports: Sequence[int]) -> list[int]:
    return random.SystemRandom().sample(ports, len(ports))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
