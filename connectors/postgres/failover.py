"""A promoted standby of the same server: gone on with where it misses nothing that the log holds.

From PostgreSQL 17 on a slot made for failover is kept on standbys too. A promoted one begins a new timeline, and what
it had not received is gone: LSNs behind the switch mean something else there. So the log must reach no further.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.checks.postgres import FAILOVER_VERSION
from cdc.errors import ConfigError, IdentityError
from cdc.lsn import Lsn
from cdc.state import SlotState
from connectors.postgres.connections import Connection, first_line
from connectors.postgres.lineage import OPEN, History, shared_lsn
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


def may_be_twin(server: ServerFacts, known: SlotState) -> bool:
    """Whether this is the pipeline's server, or another one on a timeline of that number."""
    return (
        not server.in_recovery
        and server.timeline == known.timeline
        and (server.system_identifier, server.database_oid) == (known.system_identifier, known.database_oid)
    )


def require_not_promoted(server: ServerFacts, known: SlotState, slot: SlotFacts | None) -> None:
    """IdentityError on a promoted standby that capture has not gone on with: the first snapshot has no way there."""
    if may_be_promoted(server, known, slot):
        raise IdentityError(
            f"a promoted standby answers, on timeline {server.timeline}; the snapshot was read on {known.timeline}",
            hint=f"cdc run goes on here if the snapshot was complete; if it was not: {_WAY_BACK}",
        )


def find_promotion(
    server: ServerFacts, history: History | None, known: SlotState, slot: SlotFacts | None
) -> Promotion | None:
    """Where the server's WAL ceases to be the pipeline's, None where it does not.

    A timeline's number is not its name: two standbys that are promoted one after the other take the same one.
    IdentityError when the server did not come from the pipeline's timeline, or has its number and no kept slot, or has
    lost its history and nothing else says where it came from.
    """
    kept = slot is not None and slot.failover and slot.synced
    if history is None:
        _require_proof(server, known, slot, kept=kept)
        return None
    shared = shared_lsn(known, server.timeline, history)
    if shared is None:
        raise IdentityError(
            f"the server's timeline {server.timeline} did not come from {known.timeline}, the pipeline's: "
            "LSNs mean nothing here",
            hint=f"point [source] dsn at the first server; if this one took its place: {_WAY_BACK}",
        )
    if shared < OPEN and not kept:
        raise IdentityError(
            f"another server answers that is on timeline {server.timeline}, too: it parted from the pipeline's at "
            f"{Lsn(shared)}",
            hint=f"point [source] dsn at the first server; if this one took its place: {_WAY_BACK}",
        )
    return Promotion(timeline=server.timeline, switch_lsn=shared) if shared < OPEN else None


def _require_proof(server: ServerFacts, known: SlotState, slot: SlotFacts | None, *, kept: bool) -> None:
    """IdentityError unless the slot says that this is the pipeline's server: no standby keeps one that was not made for
    failover, nor one that was read behind the promotion that capture has noted."""
    begun = known.history[-1][1] if known.history else None
    read = begun is not None and slot is not None and (slot.confirmed_flush_lsn or 0) > begun
    if server.timeline == known.timeline and (read or not kept):
        return
    raise IdentityError(
        f"Postgres has lost the history of its timeline {server.timeline}, and capture has no other proof of where "
        "the server came from",
        hint=f"put pg_wal/{server.timeline:08X}.history back from the archive or from another server of the cluster; "
        f"if there is none: {_WAY_BACK}",
    )


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
