"""How both snapshots read: the named statements of a package, and a transaction that locks, takes its snapshot,
checks that the table is as planned, and brings rows by COPY as records.

The lock comes before the snapshot. The catalog as the snapshot shows it is then compared with the plan and with the
locked tables: a rewrite in between moves rows without a change that anybody could see. Rows become records ``r`` at one
position, and a mark ends a reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import psycopg
from psycopg import pq, sql
from psycopg.rows import namedtuple_row

from cdc.process.clock import readable
from cdc.process.errors import ConfigError
from cdc.process.sql_files import load, quote_identifier
from cdc.process.untrusted_text import hide
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.envelope import read_at
from cdc.wire.format import READ_OP, TRUNCATE_OP
from cdc.wire.records import sweep_key, sweep_value
from connectors.postgres.encoding.encoder import SnapshotEnvelope, TableEncoder, record_headers
from snapshot.source.ports import Session

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Queries:
    """The statements of snapshots and of the catalog watch. Every method raises KeyError for an unknown name."""

    def text(self, name: str) -> bytes:
        """A statement without placeholders of its own, or with psycopg's."""
        return load("snapshot.source")[name].encode()

    def composed(self, name: str, **parts: sql.Composable) -> sql.Composed:
        """A statement with its ``{parts}`` filled in."""
        return sql.SQL(load("snapshot.source")[name]).format(**parts)

    def rows(self, session: Session, name: str, **arguments: Any) -> list[Any]:
        """The rows of the answer, as named tuples."""
        with session.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(self.text(name), arguments or None).fetchall()

    def one(self, session: Session, name: str, **arguments: Any) -> Any:
        """The only row of a statement that always has one."""
        return self.rows(session, name, **arguments)[0]


def table(name: TableName) -> sql.Identifier:
    """A table's name for a statement, quoted."""
    return sql.Identifier(name.schema, name.table)


def first_line(error: BaseException) -> str:
    """The error's message, without the context lines."""
    said = str(error).strip()
    return hide(said.splitlines()[0]) if said else type(error).__name__


def sqlstate(error: psycopg.Error) -> str:
    """The error by code and name. An error's own words may hold a row's values.

    >>> sqlstate(psycopg.errors.InvalidTextRepresentation("invalid input syntax for type integer: \\"secret\\""))
    '22P02 (invalid text representation)'
    """
    return f"{error.sqlstate or 'without a code'} ({_WORDS.sub(' ', type(error).__name__).lower()})"


SQL = Queries()


class Changed(Exception):
    """The table is not the one that was planned, or not the one that the snapshot shows. The argument says how."""


class LockTimeout(Exception):
    """The lock was not to be had in time. The argument is Postgres' SQLSTATE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTarget:
    """The tables that a transaction locks, checks and reads: a leaf, or a table as a whole.

    ``schema``: the registered shape, of the table that the rows belong to. ``name``, ``oid``: of the target.
    ``filenode``: of its heap as planned. None where no file is planned. ``partitions``: lock those of the target too.
    """

    schema: TableSchema
    name: TableName
    oid: int
    filenode: int | None = None
    partitions: bool = False

    @property
    def columns(self) -> sql.Composed:
        """The columns of the shape, in its order."""
        return sql.SQL(", ").join(sql.Identifier(column.name) for column in self.schema.columns)


def begin(session: Session) -> None:
    """Begin a transaction that reads one state of the database from its first statement to its end."""
    session.execute(SQL.text("begin_read"))


def open_read(session: Session, target: ReadTarget, take: Callable[[Session], None]) -> None:
    """Begin, lock, have ``take`` take the snapshot, and check. The transaction, and with it the lock, stays open.

    A role with rights on columns alone may not lock. Then a read of no row locks, behind the snapshot, and the check
    tells whether the table was changed in between. Raises :class:`Changed`, what ``take`` raises, and psycopg's
    errors: see :func:`refusals`.
    """
    begin(session)
    try:
        lock = "lock_table" if target.partitions else "lock_leaf"
        session.execute(SQL.composed(lock, table=table(target.name)))
    except psycopg.errors.InsufficientPrivilege:
        session.rollback()
        begin(session)
        take(session)
        session.execute(_columns_now(target))
    else:
        take(session)
    _check_file(session, target)
    _check_columns(session, target)


@contextmanager
def refusals(session: Session, name: TableName) -> Iterator[None]:
    """Turn Postgres's refusal of a read in ``session`` into one sentence without a value of a row.

    Raises :class:`LockTimeout` where a lock was not to be had in time, :class:`Changed` where the table or a column is
    gone, ConfigError where the read is not allowed or a row filter or condition cannot be evaluated.
    """
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise LockTimeout(sqlstate(error)) from None
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedObject) as error:
        raise Changed(f"Postgres answers {sqlstate(error)}") from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise refused(session, name, error) from None
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        raise ConfigError(f"{name} cannot be read: Postgres answers {sqlstate(error)}") from None


def copy_blocks(
    target: ReadTarget, low: int, high: int | None, *, where: Sequence[sql.Composable] = ()
) -> sql.Composed:
    """The COPY of the target's rows in blocks ``low`` up to but not including ``high`` (None: to the end).

    ``where``: conditions that all have to hold, each in parentheses.
    """
    bounds: list[sql.Composable] = []
    if low:
        bounds.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({low},0)")))
    if high is not None:
        bounds.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({high},0)")))
    rows = sql.SQL(" and ").join([*bounds, *where]) if bounds or where else sql.SQL("true")
    return SQL.composed("copy_blocks", columns=target.columns, table=table(target.name), rows=rows)


def insert_lsn(session: Session) -> int:
    """Where the server's log ends now: every commit so far lies below."""
    return int(SQL.one(session, "insert_lsn")[0])


def _check_file(session: Session, target: ReadTarget) -> None:
    quoted = table(target.name).as_string(session)
    found = SQL.rows(session, "leaf_form", oid=target.oid, table=quoted, root=target.schema.oid)
    if not found or found[0].oid != target.oid:
        raise Changed("is another table now")
    form = found[0]
    if not form.belongs:
        # Its rows would stand at the floor of the reading that its detaching asks for, or above.
        raise Changed("is no partition of the table any more")
    if target.filenode is not None and not form.seen_filenode == form.filenode == target.filenode:
        files = (target.filenode, form.seen_filenode, form.filenode)
        raise Changed("was rewritten or truncated: its file was {}, is {} in the snapshot and {} now".format(*files))


def _check_columns(session: Session, target: ReadTarget) -> None:
    seen = {row.name: row for row in SQL.rows(session, "columns_seen", oid=target.oid)}
    _check_numbers(session, target)
    with session.cursor() as cursor:
        cursor.execute(_columns_now(target))
        assert cursor.pgresult is not None
        for place, column in enumerate(target.schema.columns):
            there = seen.get(column.name)
            if there is None or there.type_oid != column.source_type_oid:
                raise Changed(f"has another column {column.name} now")
            attnum, shown = cursor.pgresult.ftablecol(place), cursor.pgresult.ftype(place)
            if there.attnum != attnum or there.shown_oid not in (None, shown):
                raise Changed(f"has another column {column.name} than the snapshot shows")


def _check_numbers(session: Session, target: ReadTarget) -> None:
    """Columns that took each other's names since the plan, of a table with masks: they would be masked by names, one
    of them not at all. Partitions have numbers of their own, and the names of their table."""
    schema = target.schema
    if not schema.noted_masks:
        return
    seen = {row.name: row.attnum for row in SQL.rows(session, "columns_seen", oid=schema.oid)}
    for column in schema.columns:
        if seen.get(column.name) != column.attnum:
            raise Changed(f"has another column {column.name} now")


def _columns_now(target: ReadTarget) -> sql.Composed:
    return SQL.composed("columns_now", columns=target.columns, table=table(target.name))


def refused(session: Session, name: TableName, error: psycopg.Error) -> ConfigError:
    """A read that Postgres does not allow, with what would allow it."""
    role = quote_identifier(session.info.user)
    # Its SQLSTATE is that of any right that is missing. The function of the server's says which.
    if error.diag.source_function == "check_enable_rls":
        return ConfigError(
            f"row security hides rows of {name} from this role, so the snapshot would miss them",
            hint=f"alter role {role} bypassrls;   or take the table out of [source] tables",
        )
    return ConfigError(
        f"{name} cannot be read: Postgres answers {sqlstate(error)}",
        hint=f"grant select on {quote_identifier(name.schema)}.{quote_identifier(name.table)} to {role};",
    )


class SweepMark(NamedTuple):
    """A record that goes to every partition of the table's topic."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def envelope(
    encoder: TableEncoder,
    position: Position,
    *,
    marker: str,
    now_ns: int,
    source_us: int | None = None,
    tx_id: int | None = None,
    op: str = READ_OP,
) -> SnapshotEnvelope:
    """The parts of a record around every row of a chunk.

    ``marker``: ``source.snapshot``. ``source_us``: when the rows were seen, in microseconds since 1970. Now unless
    given. ``tx_id``: ``source.txId``.
    """
    return encoder.snapshot_envelope(
        marker=marker,
        lsn=position.commit_lsn,
        tx_id=tx_id,
        epoch=position.epoch,
        commit_lsn=position.commit_lsn,
        tx_seq=position.tx_seq,
        source_ts_us=now_ns // 1000 if source_us is None else source_us,
        now_ns=now_ns,
        op=op,
    )


def newer(around: SnapshotEnvelope, seen_lsn: int) -> SnapshotEnvelope:
    """The parts around rows that may be newer than their position. ``seen_lsn``: of the server, behind them."""
    return replace(around, suffix=read_at(around.suffix, seen_lsn))


def sweep_mark(
    encoder: TableEncoder,
    position: Position,
    floor: str,
    partitions: int,
    *,
    marker: str,
    now_ns: int,
    seen_lsn: int | None = None,
) -> SweepMark:
    """The mark that ends a whole reading: what lies below ``floor`` was not there.

    ``partitions``: how many partitions have the mark. A store sweeps when it has seen all of them. ``seen_lsn``: of the
    server, behind the last row that was read. None where all was read at the position itself.
    """
    around = envelope(encoder, position, marker=marker, now_ns=now_ns, op=TRUNCATE_OP)
    around = around if seen_lsn is None else newer(around, seen_lsn)
    value = sweep_value(around.prefix + b"null" + around.suffix, floor, partitions)
    headers = record_headers(position, TRUNCATE_OP, encoder.schema.version)
    return SweepMark(sweep_key(str(encoder.schema.table)), value, headers)


BLOCK_LINES = 1000
BLOCK_BYTES = 1024**2


def copy_out(session: Session, statement: bytes) -> Iterator[list[bytes]]:
    """Run a COPY ... TO STDOUT. Its lines in blocks, as they come. psycopg's error when it fails.

    It waits outside libpq, so that other threads run meanwhile.
    """
    pgconn = session.pgconn
    pgconn.send_query(statement)
    _wait(pgconn)
    _expect(pgconn, pq.ExecStatus.COPY_OUT)
    take = pgconn.get_copy_data
    lines: list[bytes] = []
    size_bytes = 0
    while True:
        length, data = take(1)
        if length > 0:
            lines.append(bytes(data))
            size_bytes += length
            if size_bytes >= BLOCK_BYTES or len(lines) == BLOCK_LINES:
                yield lines
                lines, size_bytes = [], 0
        elif length == 0:
            _wait(pgconn, consume=True)
        else:
            break
    if lines:
        yield lines
    _expect(pgconn, pq.ExecStatus.COMMAND_OK)
    while pgconn.get_result():
        pass


def _wait(pgconn: pq.abc.PGconn, *, consume: bool = False) -> None:
    """Until a result is there. With ``consume`` until something came."""
    while consume or pgconn.is_busy():
        readable(pgconn.socket, None)
        pgconn.consume_input()
        if consume:
            return


def _expect(pgconn: pq.abc.PGconn, status: pq.ExecStatus) -> None:
    """The next result has that status. Else its error, the session ready for the next command."""
    result = pgconn.get_result()
    if result is None:
        raise psycopg.OperationalError("the session ended")
    if result.status != status:
        while pgconn.get_result():
            pass
        raise psycopg.errors.error_from_result(result)
