"""How far a connector's slot is behind, asked of Postgres."""

from __future__ import annotations

from cdc.errors import CdcError
from cdc.settings import Settings
from connectors.debezium.connector_config import debezium_settings
from connectors.debezium.connector_status import Lag
from connectors.postgres.catalog_facts import read_server, read_slot
from connectors.postgres.connections import connect


def read_lag(settings: Settings) -> tuple[Lag | None, str]:
    """The slot's lag, or None and why it is not known. Raises nothing of Postgres'."""
    database = debezium_settings(settings).database
    if database != "postgres":
        return None, f"a {database} source is not asked, so whether the connector reads is not known"
    try:
        with connect(settings.source) as session:
            server, slot = read_server(session), read_slot(session, settings.slot)
    except CdcError as error:
        return None, error.message
    if slot is None:
        return None, f"there is no slot {settings.slot}"
    known = server.wal_lsn is not None and slot.confirmed_flush_lsn is not None
    lag = Lag(
        slot=slot.slot,
        active=slot.active_pid is not None,
        wal_status=slot.wal_status,
        lag_bytes=(server.wal_lsn or 0) - (slot.confirmed_flush_lsn or 0) if known else None,
        retained_bytes=slot.retained_bytes,
    )
    return lag, ""
