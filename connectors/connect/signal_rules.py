"""Whether a connector would act on a signal: one that it passes over ends in a line of the worker's log alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cdc.errors import ConfigError, UsageError
from cdc.settings import Settings
from connectors.debezium.captured_tables import captures
from connectors.debezium.connector_config import debezium_settings
from connectors.debezium.connector_status import ConnectorStatus
from connectors.debezium.signals import SnapshotKind
from connectors.debezium.source_progress import reads_incrementally

_READ_ONLY = frozenset({"postgres", "mysql", "mariadb"})
"""Whose connectors find their place in the log without writing: by pg_current_snapshot(), or by GTIDs."""


def require_running(status: ConnectorStatus) -> None:
    """ConfigError for a connector that takes no signals now: it would act on them when it runs again, unasked."""
    if status.fault:
        raise ConfigError(
            f"the connector {status.name} has failed and takes no signals: {status.fault}",
            hint="mend the cause, then cdc connect restart, then send the signal again",
        )
    if not status.runs:
        raise ConfigError(
            f"the connector {status.name} is {status.state.lower()} and takes no signals",
            hint="cdc connect resume, then send the signal again",
        )


def require_captured(settings: Settings, tables: Iterable[str]) -> None:
    """UsageError for a table that the settings do not take: the connector would pass its snapshot over."""
    for table in tables:
        if not captures(settings, table):
            raise UsageError(
                f"{table} is not among the captured tables",
                hint="[source] tables names them; cdc connect deploy brings the connector to the settings",
            )


def require_snapshots(settings: Settings, running: Mapping[str, str], kind: SnapshotKind) -> None:
    """ConfigError where the connector, by the configuration that it runs with, takes no snapshot of this kind."""
    database = debezium_settings(settings).database
    if kind == "blocking" or running.get("signal.data.collection"):
        return
    if database in _READ_ONLY and running.get("read.only") == "true":
        return
    raise ConfigError(
        f"the connector for {database} takes no incremental snapshot without a signal table",
        hint="set [debezium] signal_table and run cdc connect deploy; or ask for a --blocking snapshot, "
        "which holds the stream meanwhile",
    )


def waiting_snapshot(settings: Settings, offsets: Iterable[Mapping[str, Any]]) -> str:
    """A sentence where an incremental snapshot is under way, and what it waits for. Empty where none is.

    ``offsets``: the connector's, as Kafka Connect gives them.
    """
    if not reads_incrementally(offsets):
        return ""
    debezium = debezium_settings(settings)
    if debezium.database != "postgres" or debezium.signal_table is not None:
        return "an incremental snapshot is under way"
    return "an incremental snapshot is under way: each part of it ends with the next transaction of the database"
