"""The replication connection of a session, checked to lead to the pipeline's own server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from cdc.clock import Clock
from cdc.errors import IdentityError
from cdc.settings import Settings
from cdc.state import SlotState
from connectors.postgres.abridge import row_limit
from connectors.postgres.catalog_facts import read_slot
from connectors.postgres.connections import Connection, connect
from connectors.postgres.failover import keep_on_standbys
from connectors.postgres.lineage import read_history
from connectors.postgres.stream import ReplicationStream


def open_stream(
    settings: Settings,
    side: Connection,
    slot: SlotState,
    position: int,
    clock: Clock,
    turn: Callable[[], None],
) -> ReplicationStream:
    """The slot's stream from the LSN ``position`` on; the caller closes it. ``side``: a session on the same server.
    ``turn``: called until it begins.

    IdentityError when the connection leads to another server than the slot's. ActiveError when another process has the
    slot. Raises psycopg.Error.
    """
    with ExitStack() as opened:
        connection = connect(settings.source, application_name="cdc capture stream", replication=True, turn=turn)
        opened.callback(connection.close)
        row = connection.execute("IDENTIFY_SYSTEM").fetchone()
        if row is None or row[0] != slot.system_identifier or row[1] != slot.timeline:
            raise IdentityError(
                f"the dsn leads to more than one server: the stream's is {row[0] if row else 'unknown'}",
                hint="name one host in [source] dsn",
            )
        if slot.history is not None and read_history(connection, slot.timeline) not in (None, slot.history):
            raise IdentityError(
                f"the dsn leads to more than one server that is on timeline {slot.timeline}",
                hint="name one host in [source] dsn",
            )
        if settings.source.failover:
            found = read_slot(side, slot.slot)
            if found is not None and not found.failover:
                keep_on_standbys(connection, slot.slot)
        stream = ReplicationStream(
            connection,
            settings.source,
            slot=slot.slot,
            publication=slot.publication,
            start_lsn=position,
            row_limit=row_limit(settings.log.max_message_bytes),
            clock=clock,
        )
        opened.pop_all()
        return stream
