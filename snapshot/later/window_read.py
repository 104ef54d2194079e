"""One window's rows: a chunk of a table, read to its end in a transaction that sees all that was streamed.

The transaction ends before anything waits for the stream: an ALTER that stands in line for the lock, and a re-select
behind it, would wait for each other unseen. A request's condition is tried on the source before it is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import psycopg
from psycopg import sql

from cdc.capture.transaction_visibility import Visibility
from cdc.capture.windows import WindowPairs
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ConfigError
from cdc.record.position import Position
from cdc.record.row_condition import (
    All,
    Among,
    Between,
    ColumnName,
    Compared,
    Condition,
    Either,
    Like,
    Not,
    Null,
    NumberLiteral,
    Text,
    Truth,
    Value,
)
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.wire.envelope import seen_header
from cdc.wire.format import DELETE_OP, NO_NEW_ROW, OLD_ROW, READ_OP
from cdc.wire.plain import key_literal
from connectors.postgres.encoding.encoder import TableEncoder, record_headers, unescape
from snapshot.source.planned_tables import Chunk
from snapshot.source.ports import Session
from snapshot.source.read_transaction import (
    SQL,
    Changed,
    ReadTarget,
    copy_blocks,
    copy_out,
    envelope,
    first_line,
    insert_lsn,
    newer,
    open_read,
    refusals,
    refused,
    sweep_mark,
    table,
)

declare("window_locked", "window_seen", "window_read", "window_closed")

_MARKER = "incremental"
"""``source.snapshot`` of what a window writes."""
_AROUND_BYTES = 1024
"""The bytes of a record around key and row, generously."""
_LINE_PER_ROW = 4
"""A line of COPY is at most so many times longer than the row in JSON: a byte of bytea has two characters there."""
MOST_BYTES = 32 * 1024**2
"""Of a chunk's rows in memory. A larger chunk is read in smaller ones, down to one block."""


class Unseen(Exception):
    """The snapshot does not see all that it has to: try again a little later."""


class TooWide(Exception):
    """The rows of the chunk are more than is kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTask:
    """A chunk of a table as it is to be read. ``condition``: the publication's row filter, as the catalog prints it.
    ``wanted``: the request's own condition. ``partitioned``: ``schema.table`` has its rows in partitions.
    ``most_bytes``: of a record, where the policy is to stop at a larger one."""

    chunk: Chunk
    schema: TableSchema
    partitioned: bool
    condition: str | None = None
    wanted: Condition | None = None
    most_bytes: int | None = None

    @property
    def target(self) -> ReadTarget:
        """The chunk's leaf as it was planned. For keys the table as a whole."""
        leaf, schema = self.chunk.leaf, self.schema
        if leaf is not None:
            return ReadTarget(schema=schema, name=leaf.table, oid=leaf.oid, filenode=leaf.filenode)
        return ReadTarget(schema=schema, name=schema.table, oid=schema.oid, partitions=self.partitioned)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRows:
    """The rows of a chunk: (key, row) as JSON. ``gone``: (key, row of the key alone) of asked keys without a row.

    ``insert_lsn``: the server's log behind the read. Until it is on disk, a row read may vanish in a crash. The
    rows may be as new as that, and say so.
    """

    rows: list[tuple[bytes, bytes]]
    gone: list[tuple[bytes, bytes]]
    insert_lsn: int
    seen: Visibility


def visible_now(session: Session) -> Visibility:
    """The transactions that the session's snapshot sees. Takes the snapshot where the transaction has none yet."""
    return Visibility.parse(SQL.one(session, "see")[0])


def read(session: Session, task: WindowTask, encoder: TableEncoder, passes: Callable[[Visibility], bool]) -> WindowRows:
    """Read a chunk to its end in a transaction of its own, which is over when this returns.

    Raises :class:`Unseen` when the snapshot does not pass, :class:`TooWide`, and what
    :func:`snapshot.source.read_transaction.refusals` names.
    """
    target = task.target
    try:
        with refusals(session, target.name):
            found = _read(session, task, target, encoder, passes)
    finally:
        if not session.closed:
            session.rollback()
    crash_point("window_closed")
    return found


def _read(
    session: Session, task: WindowTask, target: ReadTarget, encoder: TableEncoder, passes: Callable[[Visibility], bool]
) -> WindowRows:
    taken: list[Visibility] = []

    def take(session: Session) -> None:
        crash_point("window_locked")
        taken.append(visible_now(session))
        if not passes(taken[0]):
            raise Unseen
        crash_point("window_seen")

    open_read(session, target, take)
    rows = _rows(session, task, target, encoder)
    crash_point("window_read")
    gone = _gone(session, task, encoder, {key for key, _ in rows})
    return WindowRows(rows=rows, gone=gone, insert_lsn=insert_lsn(session), seen=taken[0])


def _rows(session: Session, task: WindowTask, target: ReadTarget, encoder: TableEncoder) -> list[tuple[bytes, bytes]]:
    query = _copy(task, target, _key_types(session, task)).as_bytes(session)
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


def _made(task: WindowTask, encoder: TableEncoder, copied: Iterator[list[bytes]]) -> list[tuple[bytes, bytes]]:
    made: list[tuple[bytes, bytes]] = []
    size_bytes = 0
    convert = encoder.snapshot_line
    for lines in copied:
        if lines and not (task.chunk.leaf or task.chunk.keys):
            raise Changed("has a partition now")
        _require_fitting(task, max(map(len, lines), default=0), _LINE_PER_ROW)
        size_bytes += sum(map(len, lines))
        if size_bytes > MOST_BYTES and task.chunk.divisible:
            raise TooWide
        made.extend(map(convert, lines))
    return made


def _require_fitting(task: WindowTask, size_bytes: int, times: int = 1) -> None:
    """ConfigError where the topic does not take a row, so that the reading fails and not the stream.

    A line far too large is refused before it is converted, which takes several times its size in memory.
    """
    if task.most_bytes is not None and size_bytes + _AROUND_BYTES > times * task.most_bytes:
        raise ConfigError(
            f"a row of {task.schema.table} has about {size_bytes:,} bytes, and its topic takes {task.most_bytes:,}",
            hint='raise [log] max_message_bytes, or set [log] oversized = "dead-letter"',
        )


def _copy(task: WindowTask, target: ReadTarget, types: Sequence[str]) -> sql.Composed:
    chunk = task.chunk
    # The catalog prints the filter as SQL, in parentheses.
    where: list[sql.Composable] = [sql.SQL(task.condition)] if task.condition else []
    if task.wanted is not None:
        where.append(as_sql(task.wanted))
    if not chunk.keys:
        return copy_blocks(target, chunk.low, chunk.high, where=where)
    name = table(target.name)
    return SQL.composed(
        "read_keys",
        columns=target.columns,
        table=name if target.partitions else sql.SQL("only {}").format(name),
        condition=sql.SQL(" and ").join(where) if where else sql.SQL("true"),
        key=sql.SQL(", ").join(sql.Identifier(column.name) for column in task.schema.key),
        **_keys(task, types),
    )


def _key_types(session: Session, task: WindowTask) -> list[str]:
    """The types of the key's columns as the catalog writes them now. Empty for a chunk that asks for no keys.

    ConfigError where the key is masked: the answer would have its plain values.
    """
    if not task.chunk.keys:
        return []
    if task.schema.masked_key:
        raise ConfigError(f"the key of {task.schema.table} is masked, so no row can be asked for by it")
    types = dict(SQL.rows(session, "key_types", oid=task.schema.oid))
    try:
        return [types[column.attnum] for column in task.schema.key]
    except KeyError:
        raise Changed("has another key now") from None


def _keys(task: WindowTask, types: Sequence[str]) -> dict[str, sql.Composable]:
    names = [sql.Identifier(f"k{number}") for number in range(len(types))]
    typed = [sql.SQL("{}::{}").format(name, sql.SQL(type_)) for name, type_ in zip(names, types, strict=True)]
    asked = [
        [key_literal(column.kind, key[place]) for key in task.chunk.keys]
        for place, column in enumerate(task.schema.key[: len(types)])
    ]
    values = [sql.SQL("{}::text[]").format(sql.Literal(texts)) for texts in asked]
    comma = sql.SQL(", ")
    return {"typed": comma.join(typed), "values": comma.join(values), "names": comma.join(names)}


def _gone(session: Session, task: WindowTask, encoder: TableEncoder, there: set[bytes]) -> list[tuple[bytes, bytes]]:
    """The asked keys that have no row, in their type's own spelling."""
    if not task.chunk.keys:
        return []
    found = []
    places = encoder.key_columns
    query = SQL.composed("canonical_keys", **_keys(task, _key_types(session, task))).as_bytes(session)
    for lines in copy_out(session, query):
        for line in lines:
            values: list[bytes | None] = [None] * len(task.schema.columns)
            for place, field in zip(places, line.removesuffix(b"\n").split(b"\t"), strict=True):
                values[place] = unescape(field)
            key = encoder.key(values)
            if key not in there:
                found.append((key, encoder.key_row(values)))
    return found


def window_rows(found: WindowRows, encoder: TableEncoder, position: Position, now_ns: int) -> Iterator[WindowPairs]:
    """The rows that a window is to write: rows as ``r``, and asked keys without a row as deletes."""
    around = newer(envelope(encoder, position, marker=_MARKER, now_ns=now_ns), found.insert_lsn)
    version = encoder.schema.version
    yield WindowPairs(
        pairs=found.rows,
        headers=record_headers(position, READ_OP, version),
        prefix=around.prefix,
        suffix=around.suffix,
    )
    if found.gone:
        headers = record_headers(position, DELETE_OP, version)
        gone = newer(envelope(encoder, position, marker=_MARKER, now_ns=now_ns, op=DELETE_OP), found.insert_lsn)
        yield WindowPairs(pairs=found.gone, headers=headers, prefix=OLD_ROW, suffix=NO_NEW_ROW + gone.suffix)
        told = [*headers, seen_header(found.insert_lsn)]
        yield WindowPairs(pairs=[(key, None) for key, _ in found.gone], headers=told)


def sweep_rows(
    encoder: TableEncoder, position: Position, floor: str, partitions: int, now_ns: int, seen_lsn: int
) -> WindowPairs:
    """The mark that ends a whole reading: what lies below ``floor`` was not there.

    ``seen_lsn``: of the server, behind the last row that was read: a row that is not there may have gone until then.
    """
    mark = sweep_mark(encoder, position, floor, partitions, marker=_MARKER, now_ns=now_ns, seen_lsn=seen_lsn)
    return WindowPairs(pairs=[(mark.key, mark.value)], headers=mark.headers, everywhere=True)


def check_condition(session: Session, name: TableName, wanted: Condition) -> None:
    """ConfigError unless the columns' types take the condition. No row is read."""
    try:
        session.execute(SQL.composed("check_condition", table=table(name), wanted=as_sql(wanted)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise refused(session, name, error) from None
    except (psycopg.DataError, psycopg.ProgrammingError) as error:
        raise ConfigError(
            f"that is no condition on {name}: {first_line(error)}", hint="a value has to fit its column's type"
        ) from None


# A parsed condition as a part of a statement: identifiers quoted, literals as literals, operators of a closed list.
#
# A literal stands without a type, so Postgres gives it the type of the column that it is compared with.

_SIGNS = MappingProxyType(
    {
        "=": sql.SQL("="),
        "<>": sql.SQL("<>"),
        "<": sql.SQL("<"),
        "<=": sql.SQL("<="),
        ">": sql.SQL(">"),
        ">=": sql.SQL(">="),
    }
)
_LIKE = MappingProxyType({False: sql.SQL("like"), True: sql.SQL("ilike")})
_NOT = MappingProxyType({False: sql.SQL(""), True: sql.SQL("not ")})
_AND, _OR, _COMMA = sql.SQL(" and "), sql.SQL(" or "), sql.SQL(", ")


def as_sql(condition: Condition) -> sql.Composable:
    """The condition, in parentheses."""
    return sql.SQL("({})").format(_part(condition))


def _part(condition: Condition) -> sql.Composable:  # noqa: PLR0911 - one case for each part of the grammar
    match condition:
        case ColumnName():
            return _value(condition)
        case Compared(left, sign, right):
            return sql.Composed([_value(left), sql.SQL(" "), _SIGNS[sign], sql.SQL(" "), _value(right)])
        case Among(column, values, negated):
            found = _COMMA.join(map(_value, values))
            return sql.SQL("{} {}in ({})").format(_value(column), _NOT[negated], found)
        case Between(column, low, high, negated):
            return sql.SQL("{} {}between {} and {}").format(_value(column), _NOT[negated], _value(low), _value(high))
        case Like(column, pattern, any_case, negated):
            return sql.SQL("{} {}{} {}").format(_value(column), _NOT[negated], _LIKE[any_case], _value(pattern))
        case Null(column, negated):
            return sql.SQL("{} is {}null").format(_value(column), _NOT[negated])
        case Not(inner):
            return sql.SQL("not {}").format(as_sql(inner))
        case All(conditions):
            return _AND.join(map(as_sql, conditions))
        case Either(conditions):
            return _OR.join(map(as_sql, conditions))


def _value(value: Value) -> sql.Composable:
    match value:
        case ColumnName(name):
            return sql.Identifier(name)
        case Text(text):
            return sql.Literal(text)
        case NumberLiteral(number):
            return sql.Literal(number)
        case Truth(truth):
            return sql.Literal(truth)


class RequestSource:
    """The database that checks a request. Implements :class:`cdc.operate.snapshot_requests.RereadSource`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def insert_lsn(self) -> int:
        return insert_lsn(self._session)

    def check(self, table: TableName, wanted: Condition) -> None:
        check_condition(self._session, table, wanted)
