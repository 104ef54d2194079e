"""Whether a connector for MySQL or MariaDB has passed a place, by the offset that Kafka Connect has stored (H131)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc.clock import Clock
from cdc.errors import ConfigError, DifferenceFound
from connectors.debezium.source_progress import is_streaming, shown_position, stored_place

_PAUSE_S = 0.5
_HEARTBEAT = "heartbeat.interval.ms"

Stored = Iterable[Mapping[str, Any]]


def require_heartbeat(name: str, running: Mapping[str, str]) -> None:
    """ConfigError where the running connector writes no heartbeats: behind its last change nothing would move it on.

    >>> require_heartbeat("shop", {"heartbeat.interval.ms": "10000"})
    """
    if running.get(_HEARTBEAT, "0") in ("", "0"):
        raise ConfigError(
            f"the connector {name} writes no heartbeats: after its last change it would never say that it is further",
            hint=f'set [debezium] heartbeat = "10s" (and no {_HEARTBEAT} in its options), then cdc connect deploy',
        )


def wait_until_passed(
    ask: Callable[[], Stored], covers: Callable[[str], bool], wanted: str, *, timeout_s: float, clock: Clock
) -> None:
    """Return when the stored offset covers ``wanted``. ``covers``: whether a set of GTIDs does.

    Difference when ``timeout_s`` has passed, ConfigError where the connector reads by file and position alone.
    """
    started = clock.monotonic()
    while True:
        stored = list(ask())
        _, _, gtids = stored_place(stored)
        streaming = is_streaming(stored)
        if streaming and covers(gtids):
            return
        if clock.monotonic() - started >= timeout_s:
            raise _late(stored, wanted, timeout_s, streaming=streaming, by_gtids=bool(gtids))
        clock.sleep(min(_PAUSE_S, timeout_s))


def _late(stored: Stored, wanted: str, timeout_s: float, *, streaming: bool, by_gtids: bool) -> Exception:
    where = shown_position(stored) or "no place yet"
    if not streaming:
        return DifferenceFound(
            f"the connector is at {where} and reads a snapshot, or has not begun",
            hint="wait until cdc connect status shows that its snapshot is complete",
        )
    if not by_gtids:
        return ConfigError(
            f"the connector's stored offset ({where}) holds no GTIDs: it is not known whether it has passed {wanted}",
            hint="a connector that began before GTIDs were on has none until its offsets are reset: "
            "cdc connect offsets --reset",
        )
    return DifferenceFound(
        f"the connector is at {where}; GTID {wanted} was not reached in {timeout_s:g} s",
        hint="cdc connect status shows whether it runs; its offset moves with each heartbeat, as often as the worker's "
        "offset.flush.interval.ms lets it, so --timeout has to be longer than both",
    )
