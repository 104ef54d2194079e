"""A promoted standby of the same server: gone on with where it misses nothing that the log holds (H55).

From PostgreSQL 17 on a slot made for failover is kept on standbys too. A promoted one begins a new timeline, and what
it had not received is gone: LSNs behind the switch mean something else there. So the log must reach no further.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.checks.postgres import FAILOVER_VERSION
from cdc.errors import ConfigError, IdentityError, SourceError
from cdc.lsn import Lsn
from cdc.state import SlotState
from connectors.postgres.connections import Connection, first_line
from connectors.postgres.slot import START_OVER, active

_WAY_BACK = f"{START_OVER}; see connectors/postgres/README.md, failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """``timeline``: the server's now. ``switch_lsn``: all that the pipeline's own timeline has below it is the same
    here. Its WAL from there on is not."""

    timeline: int
    switch_lsn: int

    def require_within(self, what: str, lsn: int) -> None:
        """IdentityError when ``lsn`` lies beyond the switch: the log holds what this server never had."""
        if lsn > self.switch_lsn:
            raise IdentityError(
                f"the promoted server goes on from {Lsn(self.switch_lsn)}, and {what} reaches to {Lsn(lsn)}: "
                "the log holds changes that were lost with the former server",
                hint=f"{_WAY_BACK}; synchronized_standby_slots on the primary prevents it",
            )


def may_be_promoted(server: ServerFacts, known: SlotState, slot: SlotFacts | None) -> bool:
    """Whether this is the pipeline's server on a later timeline, with the slot as a standby keeps it."""
    return (
        slot is not None
        and slot.failover
        and slot.synced
        and not server.in_recovery
        and server.timeline > known.timeline
        and (server.system_identifier, server.database_oid) == (known.system_identifier, known.database_oid)
    )


def require_not_promoted(server: ServerFacts, known: SlotState, slot: SlotFacts | None) -> None:
    """IdentityError on a promoted standby that capture has not gone on with: the first snapshot has no way there."""
    if may_be_promoted(server, known, slot):
        raise IdentityError(
            f"a promoted standby answers, on timeline {server.timeline}; the snapshot was read on {known.timeline}",
            hint=f"cdc run goes on here if the snapshot was complete; if it was not: {_WAY_BACK}",
        )


def read_promotion(walsender: Connection, server: ServerFacts, known: SlotState) -> Promotion:
    """Where the server's timeline left the pipeline's. IdentityError when it did not come from it."""
    try:
        row = walsender.execute(f"TIMELINE_HISTORY {server.timeline}".encode()).fetchone()
    except psycopg.Error as error:
        raise SourceError(f"Postgres does not give its timeline's history: {first_line(error)}") from None
    history = row[1] if row is not None else b""
    switch = switch_lsn(history if isinstance(history, str) else bytes(history).decode(), known.timeline)
    if switch is None:
        raise IdentityError(
            f"the server's timeline {server.timeline} did not come from {known.timeline}, the pipeline's: "
            "LSNs mean nothing here",
            hint=f"point [source] dsn at the first server; if this one took its place: {_WAY_BACK}",
        )
    return Promotion(timeline=server.timeline, switch_lsn=switch)


def switch_lsn(history: str, timeline: int) -> int | None:
    r"""Where a history file says that ``timeline`` was left. None when it does not name it.

    >>> Lsn(switch_lsn("1\t0/3000148\tno recovery target specified\n\n2\t0/5000000\tbefore 2026\n", 2))
    Lsn(0/5000000)
    >>> switch_lsn("1\t0/3000148\tno recovery target specified\n", 3) is None
    True
    """
    for line in history.splitlines():
        number, _, rest = line.strip().partition("\t")
        if number.isdigit() and int(number) == timeline:
            return Lsn.parse(rest.partition("\t")[0])
    return None


def require_failover(version: int) -> None:
    """ConfigError on a server that cannot keep slots on its standbys."""
    if version < FAILOVER_VERSION:
        raise ConfigError(
            "[source] failover = true needs PostgreSQL 17 or later, which keeps slots on standbys",
            hint="set it to false; after a failover: cdc init --new-epoch, then cdc snapshot",
        )


def keep_on_standbys(walsender: Connection, slot: str) -> None:
    """Let standbys keep a slot that nobody reads just now. ConfigError where the server cannot, or will not."""
    require_failover(walsender.info.server_version)
    query = sql.SQL("ALTER_REPLICATION_SLOT {} (FAILOVER true)").format(sql.Identifier(slot))
    try:
        walsender.execute(query)
    except psycopg.errors.ObjectInUse as error:
        raise active(slot, error.diag.message_primary or "") from None
    except psycopg.Error as error:
        raise ConfigError(
            f"the slot {slot} cannot be kept on standbys: {first_line(error)}",
            hint="set [source] failover to false, or see the server's log",
        ) from None
