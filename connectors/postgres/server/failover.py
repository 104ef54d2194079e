"""A promoted standby of the same server, and where a server's timeline came from: gone on with where nothing is
missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import generators, pq, sql

from cdc.checks.postgres import FAILOVER_VERSION
from cdc.process.errors import ConfigError, IdentityError, SourceError
from cdc.record.position import Lsn
from cdc.record.server_facts import ServerFacts, SlotFacts
from cdc.record.state import SlotState
from connectors.postgres.server.connections import Connection, first_line
from connectors.postgres.server.slot import START_OVER, active

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


# Where a server's timeline came from, and bytes of its WAL: the timeline's number alone is no identity.
#
# Each promotion takes the next free number. Two standbys of one primary that are promoted one after the other take the
# same one, and their histories differ unless both parted at one LSN.

History = list[list[int]]
"""Each timeline that was left, with the LSN at which: oldest first."""
OPEN = 2**64
"""The end of a timeline that was not left."""
_HEADER_BYTES = 25
_PASSING = ("08", "53", "57")
"""Classes of SQLSTATE that say nothing of what the server gives: a broken session, no room, a shutdown, a timeout."""
_SEGMENT_BYTES = b"select setting::int8 from pg_settings where name = 'wal_segment_size'"


def read_history(walsender: Connection, timeline: int) -> History | None:
    """Where the server's timeline came from. The first one has no history. None where the file that says it was
    removed: the server runs on without. SourceError when the server does not say."""
    if timeline == 1:
        return []
    try:
        row = walsender.execute(f"TIMELINE_HISTORY {timeline}".encode()).fetchone()
    except psycopg.errors.UndefinedFile:
        return None
    except psycopg.Error as error:
        raise SourceError(f"Postgres does not give its timeline's history: {first_line(error)}") from None
    text = row[1] if row is not None else b""
    return parse_history(text if isinstance(text, str) else bytes(text).decode())


def parse_history(text: str) -> History:
    r"""A history file (``src/backend/access/transam/timeline.c``): a line for each timeline that was left.

    >>> parse_history("1\t0/3000148\tno recovery target specified\n\n2\t0/5000000\tbefore 2026\n")
    [[1, 50331976], [2, 83886080]]
    """
    found: History = []
    for line in text.splitlines():
        number, _, rest = line.strip().partition("\t")
        if number.isdigit():
            found.append([int(number), int(Lsn.parse(rest.partition("\t")[0]))])
    return found


def shared_lsn(known: SlotState, timeline: int, history: History) -> int | None:
    """Up to which LSN a server on ``timeline`` has the pipeline's WAL. None for not at all, OPEN for all of it.

    Where the pipeline's history was never noted, it counts from its own timeline on. Where a server had lost its own,
    that of the next one begins later than ours.
    """
    ours = [*(known.history or []), [known.timeline, OPEN]]
    theirs = [*history, [timeline, OPEN]]
    if known.history is None:
        theirs = [one for place, one in enumerate(theirs) if known.timeline in [n for n, _ in theirs[: place + 1]]]
    numbers = [number for number, _ in ours]
    if history and history[0][0] in numbers:
        ours = ours[numbers.index(history[0][0]) :]
    shared = None
    for (our_number, our_end), (number, end) in zip(ours, theirs, strict=False):
        if our_number != number:
            break
        shared = min(our_end, end)
        if our_end != end:
            break
    return shared


def read_wal(walsender: Connection, timeline: int, lsn: int, size: int) -> bytes:
    """``size`` bytes of the WAL from ``lsn`` on, or as many as are written, by physical replication.

    Empty where the server does not give them: the segment was removed, or it refuses physical replication. The session
    is of no use behind it. SourceError where it is silent or breaks.
    """
    size = min(size, written_lsn(walsender) - lsn)
    found = b""
    for block in _blocks(walsender, timeline, lsn) if size > 0 else ():
        found += block
        if len(found) >= size:
            return found[:size]
    return b""


def written_lsn(walsender: Connection) -> int:
    """Up to where the server's WAL is on its disk: a walsender sends no further. SourceError when it does not say."""
    try:
        row = walsender.execute("IDENTIFY_SYSTEM").fetchone()
    except psycopg.Error as error:
        raise SourceError(f"Postgres does not say how far its WAL is: {first_line(error)}") from None
    return int(Lsn.parse(row[2])) if row is not None else 0


def segment_begin(walsender: Connection, end: int) -> int:
    """Where the segment begins that ends at ``end`` or behind it. SourceError when the server does not say."""
    try:
        row = walsender.execute(_SEGMENT_BYTES).fetchone()
    except psycopg.Error as error:
        raise SourceError(f"Postgres does not say how long a segment of its WAL is: {first_line(error)}") from None
    size = int(row[0]) if row is not None else end
    return (end - 1) // size * size


def _blocks(walsender: Connection, timeline: int, lsn: int) -> Iterator[bytes]:
    """The WAL from ``lsn`` on. No more of it where its segment was removed, and none where the server refuses.

    SourceError where it is silent for as long as the session waits for an answer, and where the session breaks.
    """
    wire = walsender.pgconn
    try:
        wire.send_query(f"START_REPLICATION PHYSICAL {Lsn(lsn)} TIMELINE {timeline}".encode())
        # Not exec_: a process that stands still would be waited for without an end, and no stop heard.
        begun = walsender.wait(generators.execute(wire))[-1]
        if begun.status != pq.ExecStatus.COPY_BOTH:
            state = (begun.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            if not state or state.startswith(_PASSING):
                raise SourceError(f"Postgres does not send its WAL: {state or 'the session broke'}")
            return
        while isinstance(data := walsender.wait(generators.copy_from(wire)), memoryview):
            if bytes(data[:1]) == b"w":
                yield bytes(data[_HEADER_BYTES:])
    except psycopg.errors.UndefinedFile:
        return
    except psycopg.Error as error:
        raise SourceError(f"Postgres broke off while its WAL was read: {first_line(error)}") from None
    raise SourceError("Postgres ended the session while its WAL was read")
