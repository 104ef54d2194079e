"""One window: a transaction that locks, looks what it sees, and reads its part of a table to the end.

The lock comes before the snapshot, and the file that is found is compared with the plan's: a rewrite in between moves
rows without a change that anybody could see (H71). The transaction ends before anything waits for the stream: an
ALTER that stands in line for the lock, and a re-select behind it, would wait for each other unseen (H87).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc.condition import Condition
from cdc.crash import crash_point, declare
from cdc.errors import ConfigError
from cdc.position import Position
from cdc.schema import TableSchema
from cdc.sql import load
from cdc.topic import TableName
from cdc.visibility import Visibility
from cdc.windows import Rows
from cdc.wire.floors import sweep_key, sweep_value
from cdc.wire.format import DELETE_OP, NO_NEW_ROW, NO_ROWS, OLD_ROW, READ_OP, TRUNCATE_OP
from connectors.postgres.encoder import TableEncoder, record_headers, unescape
from snapshot.edges import Session
from snapshot.first.chunk_read import Blocked, Changed, copy_out
from snapshot.later.chunk_queue import Part
from snapshot.later.condition_sql import as_sql
from snapshot.queries import first_line, table

declare("window_locked", "window_seen", "window_read", "window_closed")

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_AROUND_BYTES = 1024
"""What a record takes around key and row, generously."""
_LINE_PER_ROW = 4
"""A line of COPY is at most so many times longer than the row in JSON: a byte of bytea has two characters there."""
MOST_BYTES = 32 * 1024**2
"""Of a part's rows in memory; what turns out larger is read in smaller parts, down to one block."""


class Unseen(Exception):
    """The snapshot does not see all that it has to: try again a little later."""


class TooWide(Exception):
    """The rows of the part are more than is held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """A part of a table as it is to be read. ``condition``: the publication's row filter, as the catalog prints it;
    ``wanted``: the request's own condition; ``partitioned``: ``schema.table`` has its rows in partitions;
    ``most_bytes``: of a record, where the policy is to stop at a larger one."""

    part: Part
    schema: TableSchema
    partitioned: bool
    condition: str | None = None
    wanted: Condition | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRows:
    """What a part holds: (key, row) as JSON; ``gone``: (key, row of the key alone) of asked keys without a row.

    ``insert_lsn``: the server's log behind the read; until it is on disk, a row read may vanish in a crash (H88).
    """

    rows: list[tuple[bytes, bytes]]
    gone: list[tuple[bytes, bytes]]
    insert_lsn: int
    seen: Visibility


def statement(name: str, **parts: sql.Composable) -> sql.Composed:
    """One of ``later.sql``, its ``{parts}`` filled in."""
    return sql.SQL(load("snapshot", "later.sql")[name]).format(**parts)


def text(name: str) -> bytes:
    """The same without parts."""
    return load("snapshot", "later.sql")[name].encode()


def read(session: Session, task: ReadTask, encoder: TableEncoder, passes: Callable[[Visibility], bool]) -> ReadRows:
    """Read a part to its end in a transaction of its own, which is over when this returns.

    Raises :class:`Unseen` when the snapshot does not pass, :class:`Changed` when the table is not what was planned,
    :class:`Blocked` when its lock is not to be had, :class:`TooWide`, ConfigError where Postgres refuses the read.
    """
    session.execute(text("begin_read"))
    try:
        found = _read(session, task, encoder, passes)
    except psycopg.errors.LockNotAvailable as error:
        raise Blocked(sqlstate(error)) from None
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedObject) as error:
        raise Changed(sqlstate(error)) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise _refused(task, error) from None
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        raise ConfigError(f"{task.schema.table} cannot be read: Postgres answers {sqlstate(error)}") from None
    finally:
        if not session.closed:
            session.rollback()
    crash_point("window_closed")
    return found


def _read(session: Session, task: ReadTask, encoder: TableEncoder, passes: Callable[[Visibility], bool]) -> ReadRows:
    name = task.part.leaf.table if task.part.leaf else task.schema.table
    whole = task.part.leaf is None and task.partitioned
    _lock(session, task, name, whole=whole)
    crash_point("window_locked")
    row = session.execute(text("see")).fetchone()
    assert row is not None
    seen = Visibility.parse(row[0])
    if not passes(seen):
        raise Unseen
    crash_point("window_seen")
    _check(session, task, name)
    rows = _rows(session, task, encoder, name)
    crash_point("window_read")
    gone = _gone(session, task, encoder, {key for key, _ in rows})
    lsn = session.execute(text("insert_lsn")).fetchone()
    assert lsn is not None
    return ReadRows(rows=rows, gone=gone, insert_lsn=int(lsn[0]), seen=seen)


def _lock(session: Session, task: ReadTask, name: TableName, *, whole: bool) -> None:
    """Lock. A role with rights on columns alone may not: a read of them locks too, though behind the snapshot, and
    then what is checked behind it tells whether the table was rewritten in between."""
    try:
        session.execute(statement("lock_table" if whole else "lock_leaf", table=table(name)))
    except psycopg.errors.InsufficientPrivilege:
        session.rollback()
        session.execute(text("begin_read"))
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in task.schema.columns)
        session.execute(statement("columns_now", columns=columns, table=table(name)))


def _check(session: Session, task: ReadTask, name: TableName) -> None:
    leaf = task.part.leaf
    oid = leaf.oid if leaf is not None else task.schema.oid
    quoted = table(name).as_string(session)
    arguments = {"oid": oid, "table": quoted, "root": task.schema.oid}
    form = session.execute(text("leaf_form"), arguments).fetchone()
    if form is None or form[2] != oid:
        raise Changed("is another table now")
    if not form[3]:
        # Its rows would stand at the floor of the reading that its detaching asks for, or above (H86).
        raise Changed("is no partition of the table any more")
    if leaf is not None and not form[0] == form[1] == leaf.filenode:
        raise Changed("was rewritten or truncated")
    columns = {row[1]: (row[0], row[2]) for row in _columns_of(session, oid)}
    for column in task.schema.columns:
        if columns.get(column.name, (0, 0))[1] != column.type_oid:
            raise Changed(f"has another column {column.name} now")


def _columns_of(session: Session, oid: int) -> list[tuple[int, str, int]]:
    found = session.execute(text("columns"), {"oids": [oid]}).fetchall()
    return [(row[1], row[2], row[3]) for row in found]


def _rows(session: Session, task: ReadTask, encoder: TableEncoder, name: TableName) -> list[tuple[bytes, bytes]]:
    query = _copy(task, name, _key_types(session, task)).as_bytes(session)
    try:
        made = _made(task, encoder, copy_out(session, query))
    except psycopg.Error:
        raise
    except BaseException:
        # The rest of the COPY is not worth reading, and nothing else can be asked before it: the session is made anew.
        session.close()
        raise
    _require_fitting(task, max((len(key) + len(row) for key, row in made), default=0))
    return made


def _made(task: ReadTask, encoder: TableEncoder, copied: Iterator[list[bytes]]) -> list[tuple[bytes, bytes]]:
    made: list[tuple[bytes, bytes]] = []
    size_bytes = 0
    convert = encoder.snapshot_line
    for lines in copied:
        if lines and not (task.part.leaf or task.part.keys):
            raise Changed("has a partition now")
        _require_fitting(task, max(map(len, lines), default=0), _LINE_PER_ROW)
        size_bytes += sum(map(len, lines))
        if size_bytes > MOST_BYTES and divisible(task.part):
            raise TooWide
        made.extend(map(convert, lines))
    return made


def _require_fitting(task: ReadTask, size_bytes: int, times: int = 1) -> None:
    """ConfigError where the topic does not take a row, so that the reading fails and not the stream (H117).

    A line far too large is refused before it is converted, which takes several times its size in memory.
    """
    if task.most_bytes is not None and size_bytes + _AROUND_BYTES > times * task.most_bytes:
        raise ConfigError(
            f"a row of {task.schema.table} has about {size_bytes:,} bytes, and its topic takes {task.most_bytes:,}",
            hint='raise [log] max_message_bytes, or set [log] oversized = "dead-letter"',
        )


def divisible(part: Part) -> bool:
    """Whether there is a smaller part than this."""
    if part.leaf is None:
        return len(part.keys) > 1
    return part.leaf.by_range and (part.high is None or part.high - part.low > 1)


def _copy(task: ReadTask, name: TableName, types: Sequence[str]) -> sql.Composed:
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in task.schema.columns)
    # The catalog prints the filter as SQL, in parentheses.
    condition = sql.SQL(task.condition or "true")
    part = task.part
    if part.leaf is None and part.keys:
        source = table(name) if task.partitioned else sql.SQL("only {}").format(table(name))
        key = sql.SQL(", ").join(sql.Identifier(column.name) for column in task.schema.key)
        return statement("read_keys", columns=columns, table=source, condition=condition, key=key, **_keys(task, types))
    bounds: list[sql.Composable] = []
    if part.low:
        bounds.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({part.low},0)")))
    if part.high is not None:
        bounds.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({part.high},0)")))
    return statement(
        "read_blocks",
        columns=columns,
        table=table(name),
        range=sql.SQL(" and ").join(bounds) if bounds else sql.SQL("true"),
        condition=condition,
        wanted=as_sql(task.wanted) if task.wanted is not None else sql.SQL("true"),
    )


def _key_types(session: Session, task: ReadTask) -> list[str]:
    """The types of the key's columns as the catalog writes them now; empty for a part that asks for no keys."""
    if not task.part.keys:
        return []
    types = dict(session.execute(text("key_types"), {"oid": task.schema.oid}).fetchall())
    try:
        return [types[column.attnum] for column in task.schema.key]
    except KeyError:
        raise Changed("has another key now") from None


def _keys(task: ReadTask, types: Sequence[str]) -> dict[str, sql.Composable]:
    names = [sql.Identifier(f"k{number}") for number in range(len(types))]
    typed = [sql.SQL("{}::{}").format(name, sql.SQL(type_)) for name, type_ in zip(names, types, strict=True)]
    values = [sql.SQL("{}::text[]").format(sql.Literal([key[n] for key in task.part.keys])) for n in range(len(types))]
    comma = sql.SQL(", ")
    return {"typed": comma.join(typed), "values": comma.join(values), "names": comma.join(names)}


def _gone(session: Session, task: ReadTask, encoder: TableEncoder, there: set[bytes]) -> list[tuple[bytes, bytes]]:
    """The asked keys that have no row, in their type's own spelling."""
    if not task.part.keys:
        return []
    found = []
    places = encoder.key_columns
    query = statement("canonical_keys", **_keys(task, _key_types(session, task))).as_bytes(session)
    for lines in copy_out(session, query):
        for line in lines:
            values: list[bytes | None] = [None] * len(task.schema.columns)
            for place, field in zip(places, line.removesuffix(b"\n").split(b"\t"), strict=True):
                values[place] = unescape(field)
            key = encoder.key(values)
            if key not in there:
                found.append((key, encoder.key_row(values)))
    return found


def _refused(task: ReadTask, error: psycopg.Error) -> ConfigError:
    if "row-level security" in str(error) or "row security" in str(error):
        return ConfigError(
            f"row security hides rows of {task.schema.table} from this role, so some would be missing",
            hint="alter role <user> bypassrls;",
        )
    return ConfigError(
        f"{task.schema.table} cannot be read: Postgres answers {sqlstate(error)}",
        hint="grant select on it to <user>;",
    )


def sqlstate(error: psycopg.Error) -> str:
    """What went wrong by code and name. An error's own words may hold a row's values.

    >>> sqlstate(psycopg.errors.InvalidTextRepresentation("invalid input syntax for type integer: \"secret\""))
    '22P02 (invalid text representation)'
    """
    return f"{error.sqlstate or 'without a code'} ({_WORDS.sub(' ', type(error).__name__).lower()})"


def window_rows(found: ReadRows, encoder: TableEncoder, position: Position, now_ns: int) -> Iterator[Rows]:
    """What a window is to write of what was read: rows as ``r``, and asked keys without a row as deletes."""
    envelope = encoder.snapshot_envelope(
        marker="incremental",
        lsn=position.commit_lsn,
        tx_id=None,
        epoch=position.epoch,
        commit_lsn=position.commit_lsn,
        tx_seq=position.tx_seq,
        source_ts_us=now_ns // 1000,
        now_ns=now_ns,
    )
    version = encoder.schema.version
    yield Rows(
        pairs=found.rows,
        headers=record_headers(position, READ_OP, version),
        prefix=envelope.prefix,
        suffix=envelope.suffix,
    )
    if found.gone:
        headers = record_headers(position, DELETE_OP, version)
        after = NO_NEW_ROW + encoder.chunk_tail(position, DELETE_OP, now_ns)
        yield Rows(pairs=found.gone, headers=headers, prefix=OLD_ROW, suffix=after)
        yield Rows(pairs=[(key, None) for key, _ in found.gone], headers=headers)


def sweep_rows(encoder: TableEncoder, position: Position, floor: str, partitions: int, now_ns: int) -> Rows:
    """The mark that ends a whole reading: what lies below ``floor`` was not there (H23, H82)."""
    value = sweep_value(NO_ROWS + encoder.chunk_tail(position, TRUNCATE_OP, now_ns), floor, partitions)
    key = sweep_key(str(encoder.schema.table))
    headers = record_headers(position, TRUNCATE_OP, encoder.schema.version)
    return Rows(pairs=[(key, value)], headers=headers, everywhere=True)


def check_condition(session: Session, name: TableName, wanted: Condition) -> None:
    """ConfigError unless the columns' types take the condition. No row is read."""
    try:
        session.execute(statement("check_condition", table=table(name), wanted=as_sql(wanted)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(f"{name} cannot be read: Postgres answers {sqlstate(error)}") from None
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        raise ConfigError(
            f"that is no condition on {name}: {first_line(error)}", hint="a value has to fit its column's type"
        ) from None
