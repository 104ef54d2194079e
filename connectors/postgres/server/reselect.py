"""Unchanged TOAST values, fetched from the table itself (the stores' side: :mod:`sinks.contract.missing_values`).

A value read now is sound for the final state: each later change brings its own event. It is not sound
before the change itself is visible, and a commit reaches the stream a moment before that: so an answer
counts only if its own snapshot sees every transaction it is for.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.pq.abc import PGresult
from psycopg.rows import namedtuple_row

from cdc.capture.transaction_visibility import Visibility
from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SourceError
from cdc.process.logs import LoggedCauses
from cdc.process.sql_files import load
from cdc.record.schema import TableSchema
from cdc.record.tables_aside import CannotFollow, Cause
from connectors.postgres.assembly.pending_records import GONE, HELD_ROWS, LATER, Selected, WantedRow
from connectors.postgres.protocol.messages import Omitted
from connectors.postgres.server.connections import Connection, first_line

log = logging.getLogger(__name__)

declare("reselect_begun", "reselect_answered")

_SQL = "rows.sql"
_KEYS_PER_STATEMENT = HELD_ROWS
_WAITS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_TIMEOUT_S = 10.0
_NUDGE_S = 0.25
_UNKEPT = 16
"""Questions whose answers are remembered until standbys have received them."""
_LATER_S = 2.0
"""How long the stream of all tables waits for the rows of one. The session's lock_timeout is as long."""
_BRIEF_S = 0.02
"""The same where tables wait already, or one of the same question does. The brief lock_timeout is as long."""
_REFUSALS = 3
"""With so many tables that cannot be read, the others of a question are not asked: they wait as well, for a moment."""
_LEADING = 5
"""Columns before the values: snapshot, fingerprint, LSN, place, is there. Two a value: length if too long, and text."""
_COMPRESSED = 300
"""Postgres stores a value in less than a 255th of its size by neither of its ways of compression."""
_TEXTS = frozenset(("text", "varchar", "bpchar", "citext"))
_RENAMED = (
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedObject,
    psycopg.errors.InvalidSchemaName,
)
"""A name of the shape is none any more: the table's, a column's, or that of a key column's type."""
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.RaiseException)
"""What the cast of a key raises that its type has no place for (any more): an enum's label, a domain's check."""


class _Now(NamedTuple):
    """A column as it is now. ``is_text``: of a string type, or of a domain over one."""

    name: str
    type_oid: int
    is_text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A table as it can be asked now. ``columns`` by attnum. ``operators`` of key columns."""

    table: sql.Identifier
    partitioned: bool
    fingerprint: str
    columns: Mapping[int, _Now]
    operators: Mapping[int, tuple[str, str, str]]


class PostgresReselect:
    """Implements :class:`connectors.postgres.assembly.pending_records.Reselect` on a session of its own with a
    ``lock_timeout``.

    ``waiting`` is called, several times a second, while an answer is waited for. It may raise. ``failover_slot``: one
    that standbys keep. An answer then counts only when they have received what it saw: a value that is undone by a
    failover would stay in the log, and no change would correct it. ``row_limit``: of text that is longer, no
    record that a topic takes can be made, and it is not fetched.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        waiting: Callable[[], None] = lambda: None,
        failover_slot: str | None = None,
        row_limit: int = 1 << 30,
    ) -> None:
        self._connection = connection
        self._row_limit = row_limit
        self._clock = clock
        self._waiting = waiting
        self._failover_slot = failover_slot
        self._shapes: dict[int, _Shape | None] = {}
        self._unkept: dict[tuple[tuple[WantedRow, ...], frozenset[int]], tuple[list[Selected], int]] = {}
        self._nudged_s = 0.0
        self._locked_out, self._refused_keys = LoggedCauses(), LoggedCauses()
        self.count = self.seen_lsn = 0
        """Rows asked for so far, and see the port."""

    def rows(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool = False) -> list[Selected]:
        """The values of each, or GONE, in order. LATER for a table that is locked, or where a transaction of ``xids``
        does not become visible, or a standby does not receive what was read, in about two seconds. That is for all
        tables together: each table behind the first such one has 20 ms, and behind the third none."""
        slot = self._failover_slot
        answers = self._kept(slot, wanted, xids, brief=brief) if slot else self._answered(wanted, xids, brief=brief)
        crash_point("reselect_answered")
        return answers

    def _answered(self, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool) -> list[Selected]:
        with ExitStack() as limits:
            if brief:
                limits.enter_context(self._limited())
            answers = self._rows(wanted, xids, limits, brief=brief)
        self.seen_lsn = max(self.seen_lsn, self._lsn("insert_lsn") if GONE in answers else 0)
        return answers

    @contextmanager
    def _limited(self) -> Iterator[None]:
        try:
            self._connection.execute(b"set lock_timeout = '20ms'")
            try:
                yield
            finally:
                self._connection.execute(b"reset lock_timeout")
        except psycopg.Error as error:
            raise _broken(error) from None

    def _rows(
        self, wanted: Sequence[WantedRow], xids: Collection[int], limits: ExitStack, *, brief: bool
    ) -> list[Selected]:
        self.count += len(wanted)
        crash_point("reselect_begun")
        answers: list[Selected] = [GONE] * len(wanted)
        groups: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
        for place, one in enumerate(wanted):
            groups[one.schema.oid, one.columns].append(place)
        locked: set[int] = set()
        for (oid, _), places in groups.items():
            for start in range(0, len(places), _KEYS_PER_STATEMENT):
                part = places[start : start + _KEYS_PER_STATEMENT]
                some = [wanted[p] for p in part]
                if oid in locked or len(locked) >= _REFUSALS:
                    found: Sequence[Selected] = [LATER] * len(some)
                else:
                    found = self._patiently(some, xids, _BRIEF_S if brief else _LATER_S)
                if LATER in found:
                    locked.add(oid)
                    if not brief:
                        brief = True
                        limits.enter_context(self._limited())
                for place, answer in zip(part, found, strict=True):
                    answers[place] = answer
        return answers

    def _kept(self, slot: str, wanted: Sequence[WantedRow], xids: Collection[int], *, brief: bool) -> list[Selected]:
        """The same, once the standbys have received what was read. Their missing values stay for the same question:
        read again, it would be newer each time than what a standby that lags has."""
        question = (tuple(wanted), frozenset(xids))
        found = self._unkept.pop(question, None)
        if found is None:
            answers = self._answered(wanted, xids, brief=brief)
            found = answers, self._lsn("insert_lsn")
        self.seen_lsn = found[1]
        if self._kept_by_standbys(slot, found[1], 0.0 if brief else _LATER_S):
            return found[0]
        if len(self._unkept) >= _UNKEPT:
            self._unkept.clear()
        self._unkept[question] = found
        return [LATER] * len(wanted)

    def _patiently(self, wanted: Sequence[WantedRow], xids: Collection[int], limit_s: float) -> Sequence[Selected]:
        refused = visible = False
        for waited in self._turns():
            refused_before = refused
            try:
                visible = refused and self._visible(xids)
                answer = self._ask(wanted, xids)
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                # An ALTER stands in line for the table, or has it: let it through, and ask again.
                name, why = str(wanted[0].schema.table), first_line(error)
                if self._locked_out.is_new(name, why):
                    log.info("reselect_locked_out", extra={"table": name, "why": why})
                return [LATER] * len(wanted)
            except _RENAMED:
                self._shapes.pop(wanted[0].schema.oid, None)
                answer = None
            except _REFUSED as error:
                # Its label or domain may come with a commit that is not visible yet: only after that it is final.
                answer = self._refused(wanted, xids, error, limit_s) if visible else None
                refused = True
            except psycopg.errors.InsufficientPrivilege as error:
                table = wanted[0].schema.table
                raise CannotFollow(
                    f"values of {table} cannot be read: {error.diag.message_primary}",
                    hint=f"grant select on {table} to the role of [source] dsn",
                    cause=Cause.NOT_READABLE,
                    tables=[table],
                ) from None
            except psycopg.Error as error:
                raise _broken(error) from None
            if answer is not None:
                self._locked_out.over(str(wanted[0].schema.table))
                return answer
            if waited >= limit_s and refused == refused_before:
                return [LATER] * len(wanted)
        raise AssertionError("the turns never end")

    def _refused(
        self, wanted: Sequence[WantedRow], xids: Collection[int], error: psycopg.Error, limit_s: float
    ) -> list[Selected]:
        """One key of these does not fit its type: that row is gone, the others are asked for one by one."""
        if len(wanted) > 1:
            return [answer for one in wanted for answer in self._patiently([one], xids, limit_s)]
        # Not the error's text, which quotes the key.
        name = str(wanted[0].schema.table)
        if self._refused_keys.is_new(name, error.sqlstate or ""):
            log.warning("reselect_key_refused", extra={"table": name, "sqlstate": error.sqlstate})
        return [GONE]

    def _visible(self, xids: Collection[int]) -> bool:
        row = self._connection.execute(load(__package__, _SQL)["snapshot"].encode()).fetchone()
        assert row is not None
        seen = Visibility.parse(row[0])
        return all(seen.sees(xid) for xid in xids)

    def _kept_by_standbys(self, slot: str, seen: int, limit_s: float) -> bool:
        """Whether the standbys that keep the slot receive all below ``seen``, within ``limit_s``."""
        for waited_s in self._turns("a standby to receive what was read"):
            if self._lsn("kept_lsn", slot=slot) >= seen:
                return True
            now_s = self._clock.monotonic()
            if (waited_s > _NUDGE_S or not limit_s) and now_s - self._nudged_s > _NUDGE_S:
                self._nudged_s = now_s
                with self._connection.transaction():
                    self._connection.execute(b"set local synchronous_commit = local")
                    self._connection.execute(load(__package__, _SQL)["nudge"].encode())
            if waited_s >= limit_s:
                return False
        raise AssertionError("the turns never end")

    def _lsn(self, name: str, **arguments: str) -> int:
        try:
            row = self._connection.execute(load(__package__, _SQL)[name].encode(), arguments or None).fetchone()
        except psycopg.Error as error:
            raise _broken(error) from None
        assert row is not None
        return int(row[0])

    def _turns(self, what: str = "a commit to become visible") -> Iterator[float]:
        """Endless. Sleeps between turns, longer and longer. Yields how long it has been."""
        start, told = self._clock.monotonic(), False
        turn = 0
        while True:
            yield self._clock.monotonic() - start
            self._waiting()
            self._clock.sleep(_WAITS_S[min(turn, len(_WAITS_S) - 1)])
            turn += 1
            if not told and self._clock.monotonic() - start > _TIMEOUT_S:
                told = True
                log.warning("reselect_waits", extra={"waited_s": _TIMEOUT_S, "for": what})

    def _ask(self, wanted: Sequence[WantedRow], xids: Collection[int]) -> list[Selected] | None:
        """One attempt. None when it has to be made again."""
        schema = wanted[0].schema
        shape = self._shape(schema)
        fields = _fields(schema, wanted[0].columns, shape) if shape is not None else None
        if shape is None or fields is None:
            # Table or column gone, or of another type now. The catalog is newer than the stream: nothing to wait for.
            self._shapes.pop(schema.oid, None)
            return [GONE] * len(wanted)
        result = self._fetch(schema, shape, fields, wanted)
        if result.ntuples < len(wanted):
            raise SourceError("a re-select came back without a row")
        if _text(result, 0, 1) != shape.fingerprint:
            self._shapes.pop(schema.oid, None)
            return None
        seen = Visibility.parse(_text(result, 0, 0))
        if not all(seen.sees(xid) for xid in xids):
            return None
        self.seen_lsn = max(self.seen_lsn, int(_text(result, 0, 2)))
        return _answers(result, len(wanted), len(fields))

    def _fetch(
        self, schema: TableSchema, shape: _Shape, fields: Sequence[str], wanted: Sequence[WantedRow]
    ) -> PGresult:
        numbers = range(1, len(schema.key) + 1)
        names = [sql.Identifier(f"k{n}") for n in numbers]
        match = []
        for name, column in zip(names, schema.key, strict=True):
            type_, operator_schema, operator = shape.operators[column.attnum]
            match.append(
                sql.SQL("t.{column} operator({schema}.{operator}) w.{name}::{type}").format(
                    column=sql.Identifier(shape.columns[column.attnum].name),
                    schema=sql.Identifier(operator_schema),
                    operator=sql.SQL(operator),
                    name=name,
                    type=sql.SQL(type_),
                )
            )
        query = sql.SQL(load(__package__, _SQL)["rows"]).format(
            oid=sql.Literal(int(schema.oid)),
            columns=sql.SQL("").join(self._column(field) for field in fields),
            keys=sql.SQL(", ").join(sql.SQL("%s::text[]") for _ in numbers),
            names=sql.SQL(", ").join(names),
            # A table that inherits has rows, and keys, of its own.
            only=sql.SQL("" if shape.partitioned else "only "),
            table=shape.table,
            match=sql.SQL(" and ").join(match),
        )
        keys = [[one.key[n].decode() for one in wanted] for n in range(len(schema.key))]
        with self._connection.cursor(binary=False) as cursor:
            cursor.execute(query, keys)
            assert cursor.pgresult is not None
            return cursor.pgresult

    def _column(self, field: str) -> sql.Composed:
        """Its text, or its text's length."""
        return sql.SQL(load(__package__, _SQL)["column"]).format(
            field=sql.Identifier(field),
            stored=sql.SQL(str(self._row_limit // _COMPRESSED)),
            limit=sql.SQL(str(self._row_limit)),
        )

    def _shape(self, schema: TableSchema) -> _Shape | None:
        if schema.oid not in self._shapes:
            with self._connection.cursor(row_factory=namedtuple_row) as cursor:
                query = load(__package__, _SQL)["shape"].encode()
                row: Any = cursor.execute(query, {"oid": schema.oid}).fetchone()
            self._shapes[schema.oid] = _as_shape(row, schema) if row is not None else None
        return self._shapes[schema.oid]


def _as_shape(row: Any, schema: TableSchema) -> _Shape | None:
    operators = {int(attnum): tuple(found) for attnum, found in (row.operators or {}).items()}
    if any(column.attnum not in operators for column in schema.key):
        return None  # the key is another one now
    return _Shape(
        table=sql.Identifier(row.schema, row.name),
        partitioned=row.partitioned,
        fingerprint=row.fingerprint or "",
        columns={int(attnum): _Now(*now) for attnum, now in (row.columns or {}).items()},
        operators=operators,
    )


def _fields(schema: TableSchema, columns: Sequence[int], shape: _Shape) -> list[str] | None:
    """Today's names of the wanted columns. None when one is gone or has another type.

    From one string type to another is no other type: Postgres rewrites no row for it, so the value stays left out.
    """
    names = []
    for index in columns:
        column = schema.columns[index]
        before = column.mask or column
        now = shape.columns.get(column.attnum)
        both_text = now is not None and now.is_text and before.kind in _TEXTS and not before.array
        if now is None or (now.type_oid != before.type_oid and not both_text):
            return None
        names.append(now.name)
    return names


def _answers(result: PGresult, count: int, width: int) -> list[Selected]:
    """By place. Two rows for one place: the key is none any more, and neither row is known to be the one."""
    found: dict[int, Selected] = {}
    for row in range(result.ntuples):
        place = int(_text(result, row, _LEADING - 2))
        there = result.get_value(row, _LEADING - 1) == b"t" and place not in found
        found[place] = tuple(_value(result, row, _LEADING + 2 * n) for n in range(width)) if there else GONE
    return [found[place] for place in range(1, count + 1)]


def _value(result: PGresult, row: int, column: int) -> bytes | Omitted | None:
    long = result.get_value(row, column)
    return result.get_value(row, column + 1) if long is None else Omitted(int(long), b"")


def _text(result: PGresult, row: int, column: int) -> str:
    return (result.get_value(row, column) or b"").decode()


def _broken(error: psycopg.Error) -> SourceError:
    return SourceError(f"Postgres broke off a re-select: {first_line(error)}")
