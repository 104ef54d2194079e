"""Whether somebody asked a connector for a snapshot, by the signals that it has been given.

The connector writes the same records for a snapshot on request as for its first one. One that we configure takes
requests from its topic of signals alone, unless there is a table of signals: without a signal there, it began anew by
itself.
"""

from __future__ import annotations

from typing import Any

import orjson

from cdc.errors import LogError, Retry
from cdc.settings import DebeziumSettings, Settings
from connectors.debezium.connector_config import signal_topic
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.small_topic import read_small

_DAY_MS = 86_400_000
_LATE_MS = 300_000
"""By how much the clock of who sent the signal may be ahead of the brokers'."""
_MOST = 10_000
_KNOWN = ("postgres", "mysql", "mariadb")
"""Others may have several tasks, each with a first snapshot of its own."""
_WAYS = frozenset(("signal.enabled.channels", "signal.kafka.topic", "signal.data.collection"))
_HARMLESS = frozenset(
    f"snapshot.{name}" for name in ("delay.ms", "fetch.size", "isolation.mode", "lock.timeout.ms", "locking.mode")
)
"""Any other option may read a table in pieces, each with a beginning of its own, or begin a snapshot by itself."""


def asked_for(settings: Settings, began_ms: int, now_ms: int) -> bool | None:
    """Whether a signal asked for the snapshot of whole tables whose first record has the time ``began_ms`` (since
    1970). None where that cannot be known: there are other ways of asking, the snapshot is older than a day, or signals
    may be gone.

    LogError when no broker answers.
    """
    if settings.debezium is None or _otherwise(settings.debezium) or now_ms - began_ms > _DAY_MS:
        return None
    try:
        return _signalled(settings, began_ms)
    except LogError as failure:
        if failure.retry is Retry.NEVER:
            return None  # this login may not read signals
        raise


def _signalled(settings: Settings, began_ms: int) -> bool | None:
    topic, admin = signal_topic(settings), TopicAdmin(settings.log)
    if topic not in admin.names():
        return None
    if admin.end_offsets({topic: 1})[topic][0] == 0:
        return False
    found = read_small(settings.log, topic, _MOST)
    signals = [(m.offset() or 0, m.timestamp()[1], m.value()) for m in found] if found is not None else []
    since_ms = began_ms - _DAY_MS
    if not signals or (signals[0][0] > 0 and signals[0][1] > since_ms):
        return None  # the topic had more, and what it had may have been of that day
    return any(asks(value) for _, at_ms, value in signals if since_ms <= at_ms <= began_ms + _LATE_MS)


def _otherwise(debezium: DebeziumSettings) -> bool:
    """Whether a snapshot may begin by another way than a signal on the topic."""
    own = any(name in _WAYS or (name.startswith("snapshot.") and name not in _HARMLESS) for name in debezium.options)
    known = debezium.database in _KNOWN and debezium.snapshot_mode == "initial"
    return own or not known or debezium.signal_table is not None


def asks(value: bytes | None) -> bool:
    """Whether a signal asks for a snapshot of whole tables. True for one that is not readable.

    >>> asks(b'{"type": "execute-snapshot", "data": {"type": "BLOCKING"}}')
    True
    >>> asks(b'{"type": "execute-snapshot", "data": {"type": "incremental"}}'), asks(None)
    (False, False)
    """
    if value is None:
        return False
    try:
        signal: Any = orjson.loads(value)
        if signal["type"] != "execute-snapshot":
            return False
        kind: Any = signal["data"].get("type", "incremental")
        return str(kind).lower() != "incremental"
    except (ValueError, TypeError, KeyError, AttributeError):
        return True
