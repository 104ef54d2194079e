"""Where a server's timeline came from, and bytes of its WAL: the timeline's number alone is no identity (H192).

Each promotion takes the next free number. Two standbys of one primary that are promoted one after the other take the
same one, and their WAL differs from there on.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import psycopg
from psycopg import pq

from cdc.errors import SourceError
from cdc.lsn import Lsn
from cdc.state import SlotState
from cdc.wal_witness import WalWitness
from connectors.postgres.connections import Connection, first_line

History = list[list[int]]
"""Each timeline that was left, with the LSN at which: oldest first."""
OPEN = 2**64
"""The end of a timeline that was not left."""
WITNESS_BYTES = 48
"""A promotion begins its WAL with a record that holds its time (``XLOG_END_OF_RECOVERY``): that much of it is there."""
_HEADER_BYTES = 25
_ANSWER_S = 10.0
_MOST_BYTES = 64 * 1024**2
"""How far back written WAL is looked for."""
_SEGMENT_BYTES = b"select setting::int8 from pg_settings where name = 'wal_segment_size'"


class Lineage(NamedTuple):
    """``wal``: what the server has where the pipeline's :class:`cdc.wal_witness.WalWitness` was taken, in hex. Empty
    where it has it no more or not yet, and where there is no such witness of its timeline. ``history``: None where the
    server has lost it."""

    history: History | None
    wal: str = ""

    @property
    def begun(self) -> int:
        """The LSN at which the timeline began."""
        return self.history[-1][1] if self.history else 0


def read_lineage(walsender: Connection, timeline: int, witness: WalWitness | None) -> Lineage:
    """Ask for both. The session is of no use behind it. SourceError when the server does not say."""
    found = Lineage(read_history(walsender, timeline))
    if witness is None or witness.timeline != timeline:
        return found
    return found._replace(wal=read_wal(walsender, timeline, witness.lsn))


def read_history(walsender: Connection, timeline: int) -> History | None:
    """Where the server's timeline came from. The first one has no history. None where the file that says it was
    removed: the server runs on without (H205). SourceError when the server does not say."""
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

    Where the pipeline's history was never noted, it counts from its own timeline on.
    """
    ours = [*(known.history or []), [known.timeline, OPEN]]
    theirs = [*history, [timeline, OPEN]]
    if known.history is None:
        theirs = [one for place, one in enumerate(theirs) if known.timeline in [n for n, _ in theirs[: place + 1]]]
    shared = None
    for (our_number, our_end), (number, end) in zip(ours, theirs, strict=False):
        if our_number != number:
            break
        shared = min(our_end, end)
        if our_end != end:
            break
    return shared


def read_wal(walsender: Connection, timeline: int, lsn: int) -> str:
    """:data:`WITNESS_BYTES` of the WAL from ``lsn`` on, in hex, by the protocol of physical replication.

    Empty where the server does not give them. The session is of no use behind it.
    """
    found = b""
    with suppress(psycopg.Error):
        for block in _blocks(walsender, timeline, lsn):
            found += block
            if len(found) >= WITNESS_BYTES:
                return found[:WITNESS_BYTES].hex()
    return ""


def started(session: Connection) -> str:
    """When the server was started, as text. Files that are put back need another start. SourceError when it does not
    say."""
    try:
        row = session.execute(b"select pg_postmaster_start_time()::text").fetchone()
    except psycopg.Error as error:
        raise SourceError(f"Postgres does not say when it was started: {first_line(error)}") from None
    return str(row[0]) if row is not None else ""


def is_filling(wal: str) -> bool:
    """Whether bytes in hex are what fills a segment that was switched early, as by ``archive_timeout``: zeros, which
    every server has there (H201)."""
    return wal.endswith("00" * (WITNESS_BYTES // 2))


def read_last_written(walsender: Connection, timeline: int, end: int) -> tuple[int, str]:
    """The last :data:`WITNESS_BYTES` below ``end`` in its segment that were written, and where they begin.

    ``(0, "")`` where there are none, or the server does not give them. The session is of no use behind it. SourceError
    when the server does not say how long a segment is.
    """
    at = begin = max(_segment_begin(walsender, end), end - _MOST_BYTES)
    kept, data = (0, ""), b""
    with suppress(psycopg.Error):
        for block in _blocks(walsender, timeline, begin):
            data = data[-WITNESS_BYTES:] + block[: end - at]
            at = min(at + len(block), end)
            written = data.rstrip(b"\0")
            if len(written) >= WITNESS_BYTES:
                kept = at - len(data) + len(written) - WITNESS_BYTES, written[-WITNESS_BYTES:].hex()
            if at == end:
                return kept
    return 0, ""


def _segment_begin(walsender: Connection, end: int) -> int:
    """Where the segment begins that ends at ``end`` or behind it."""
    try:
        row = walsender.execute(_SEGMENT_BYTES).fetchone()
    except psycopg.Error as error:
        raise SourceError(f"Postgres does not say how long a segment of its WAL is: {first_line(error)}") from None
    size = int(row[0]) if row is not None else end
    return (end - 1) // size * size


def _blocks(walsender: Connection, timeline: int, lsn: int) -> Iterator[bytes]:
    """The WAL from ``lsn`` on, until the server is silent. Raises psycopg.Error."""
    wire = walsender.pgconn
    started = wire.exec_(f"START_REPLICATION PHYSICAL {Lsn(lsn)} TIMELINE {timeline}".encode())
    while started.status == pq.ExecStatus.COPY_BOTH:
        size, data = wire.get_copy_data(1)
        if size > 0 and bytes(data[:1]) == b"w":
            yield bytes(data[_HEADER_BYTES:])
        elif size < 0 or (size == 0 and not select.select([wire.socket], [], [], _ANSWER_S)[0]):
            return
        elif size == 0:
            wire.consume_input()
