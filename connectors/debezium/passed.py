"""Whether a connector for MySQL or MariaDB has passed a place, by the offset that Kafka Connect has stored (H131)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from cdc.clock import Clock
from cdc.errors import ConfigError, DifferenceFound
from connectors.debezium.source_progress import StoredPlace, is_streaming, shown_position, stored_place

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


class FollowedServer(Protocol):
    """The server that the connector reads, asked while one waits for the connector."""

    def covers(self, passed: str, wanted: str) -> bool:
        """Whether a set of GTIDs holds another. ValueError for what is none."""

    def beyond(self, file: str, pos: int, gtids: str) -> str:
        """Where the server's log ends, if a place that was noted before lies behind that. Empty where it does not."""


def wait_until_passed(
    ask: Callable[[], Stored], server: FollowedServer, wanted: str, *, timeout_s: float, clock: Clock
) -> str:
    """Return when the stored offset covers ``wanted``: the GTIDs of that offset.

    An offset behind the end of the server's log is of another log: GTIDs are counted from 1 again after RESET MASTER.
    DifferenceFound when ``timeout_s`` has passed, ConfigError where the connector reads by file and position alone, and
    where its offset is not of this server's log.
    """
    started = clock.monotonic()
    while True:
        stored = list(ask())
        place, streaming = stored_place(stored), is_streaming(stored)
        end = ""
        if streaming and server.covers(place.gtids, wanted) and not _names_half(place, server, wanted):
            end = server.beyond(place.file, place.pos, place.gtids)
            if not end:
                return place.gtids
        if clock.monotonic() - started >= timeout_s:
            raise _foreign(stored, end) if end else _late(stored, wanted, timeout_s, streaming=streaming)
        clock.sleep(min(_PAUSE_S, timeout_s))


def _names_half(place: StoredPlace, server: FollowedServer, wanted: str) -> bool:
    """Whether ``wanted`` may be a transaction of which a part is written alone.

    Inside of a transaction the offset's GTIDs are those before it. But a connector that began without any names the
    first one there while it writes it, because it has no other (``BinlogOffsetContext.startGtid`` of Debezium 3.7).
    """
    return place.within and server.covers(wanted, place.gtids)


def _foreign(stored: Stored, end: str) -> Exception:
    return ConfigError(
        f"the connector's stored offset ({shown_position(stored)}) lies behind the end of the server's log ({end}): "
        "the log has begun anew, as by RESET MASTER, or the connector reads another server",
        hint="where it has begun anew: cdc connect offsets --reset, then cdc connect resume; [source] dsn has to name "
        "the server that the connector reads",
    )


def _late(stored: Stored, wanted: str, timeout_s: float, *, streaming: bool) -> Exception:
    where = shown_position(stored) or "no place yet"
    if not streaming:
        return DifferenceFound(
            f"the connector is at {where} and reads a snapshot, or has not begun",
            hint="wait until cdc connect status shows that its snapshot is complete",
        )
    if not stored_place(stored).gtids:
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
