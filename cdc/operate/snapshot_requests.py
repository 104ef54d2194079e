"""Tables to be read again while the stream runs: asked for, followed, paused (``cdc snapshot TABLE``).

Each request is one record of the state topic, and a call writes all or none. The capture carries requests out:
:mod:`snapshot.later.request_scheduler`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import unquote

from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, UsageError
from cdc.record.ports import CompactedTopic
from cdc.record.row_condition import Condition, NoCondition, columns, parse, show
from cdc.record.schema import TableSchema
from cdc.record.state import (
    CommandState,
    FormState,
    ReadingState,
    RequestState,
    SnapshotState,
    TopicsState,
    find_all,
    requests_of,
)
from cdc.record.tables_aside import asides_of
from cdc.record.topic_names import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRows:
    """The rows to read: all, those that meet the condition ``where``, or those of ``keys``, as stores write them."""

    where: str | None = None
    keys: Sequence[str] | None = None


class Rereads:
    """Asks for tables to be read again, and follows them. LogError when no broker answers."""

    def __init__(self, ports: RereadPorts, clock: Clock) -> None:
        self._ports = ports
        self._clock = clock

    def ask(self, tables: Sequence[str], wanted: WantedRows) -> list[RequestState]:
        """Write a request for each table. One for all of a table that is under way already is joined, not begun anew.

        ConfigError, UsageError or SourceError when a request could not be carried out, and then none is written.
        """
        documents = self._ports.state.read()
        captured = {name: captured_table(documents, name) for name in tables}
        under_way = {one.id: one for one in requests_of(documents)}
        aside = asides_of(documents)
        asked, joined = [], []
        with self._ports.source() as source:
            after_lsn = source.insert_lsn()
            for table in captured.values():
                request = self._request(table, wanted, after_lsn, source)
                known = under_way.get(request.id)
                if known is not None and request.whole and str(table) not in aside:
                    # A new table may be set aside a moment later, as one that had another name. Then it is followed
                    # because an operator asks. Of a table that was read before, a reason to read it again stands.
                    joined.append(replace(known, by_hand=known.by_hand or known.first))
                else:
                    asked.append(request)
        found = asked + joined
        changed = [request for request in found if request != under_way.get(request.id)]
        self._ports.state.write([(request.key(), request.to_json()) for request in changed])
        return found

    def ask_first(self) -> None:
        """Ask for every table's first rows, before there is a slot.

        Asking twice is asking once: a table that has been read, or is asked for, is left alone. UsageError when the
        first snapshot has begun already.
        """
        asked = first_requests(self._ports.state.read(), self._clock.now_ns())
        self._ports.state.write([(one.key(), one.to_json()) for one in asked])

    def command(self, tables: Sequence[str], state: str) -> list[str]:
        """Pause, resume or cancel every request on these tables (all without any). To cancel also clears what is noted
        of those that failed. Returns sentences about them.

        UsageError when there is none.
        """
        documents = self._ports.state.read()
        found = commands_for(documents, tables, state)
        failed = given_up(documents, tables) if state == "cancelled" else []
        if not found and not failed:
            raise UsageError("no table is being read again", hint="cdc status shows what is under way")
        # Nobody carries out a request that is over, so its notes have no writer any more.
        cleared = [(one.key(), None) for one in failed]
        self._ports.state.write([*((one.key(), one.to_json()) for _, one in found), *cleared])
        said = [f"{table}: {state}" for table, _ in found]
        return said + [f"{one.table}: what could not be read is given up" for one in failed]

    def look(self, requests: Sequence[RequestState]) -> list[ReadingState | None]:
        """How far each request is, None where nobody has taken it up."""
        return progress_of(self._ports.state.read(), requests)

    def _request(self, table: TableName, wanted: WantedRows, after_lsn: int, source: RereadSource) -> RequestState:
        serial = self._clock.now_ns()
        request = RequestState(
            id=f"snapshot:{table}",
            table=str(table),
            after_lsn=after_lsn,
            reason=f"{table} was asked for",
            serial=serial,
            by_hand=True,
        )
        if wanted.where is not None:
            shape = self._shape(table)
            condition = condition_on(wanted.where, shape)
            source.check(shape.table, condition)
            return replace(request, id=f"snapshot:{table}:where:{serial}", where=show(condition))
        if wanted.keys is not None:
            split = [[unquote(part) for part in key.split(":")] for key in wanted.keys]
            key_texts(split, self._shape(table))
            return replace(request, id=f"snapshot:{table}:keys:{serial}", keys=split)
        return request

    def _shape(self, table: TableName) -> TableSchema:
        shape = self._ports.shape(table)
        if shape is None:
            raise ConfigError(f"the shape of {table} is not known", hint="cdc init registers it")
        return shape


class RereadSource(Protocol):
    """A session with the Postgres server. SourceError when it does not answer."""

    def insert_lsn(self) -> int:
        """An LSN that every commit so far lies below."""

    def check(self, table: TableName, wanted: Condition) -> None:
        """ConfigError unless the columns' types take the condition. No row is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadPorts:
    """Everything that requests use. ``state``: the pipeline's topic. ``source`` opens a session. ``shape``: the newest
    that the schema topic has of a table."""

    state: CompactedTopic
    source: Callable[[], AbstractContextManager[RereadSource]]
    shape: Callable[[TableName], TableSchema | None]


def captured_table(documents: Mapping[bytes, bytes], name: str) -> TableName:
    """The captured table of this name, with or without its schema. ``documents``: the state topic's records.

    UsageError when there is not exactly one, or while the first snapshot is not complete.
    """
    head, topics = SnapshotState.find(documents), TopicsState.find(documents)
    if topics is None or head is None or head.state != "complete":
        raise UsageError("the first snapshot takes every table", hint="cdc snapshot, without a table")
    known = {table: TableName(*table.split(".", 1)) for table in topics.tables}
    if name in known:
        return known[name]
    # A schema's name may have a dot in it, and so may a table's: only the whole text is sure.
    found = [table for text, table in known.items() if text.endswith(f".{name}")]
    for form in find_all(documents, FormState) if not found else ():
        leaves = {f"{schema}.{leaf}" for _, schema, leaf, _ in form.leaves} - {form.table}
        if any(name in (leaf, leaf.partition(".")[2]) for leaf in leaves):
            hint = f"cdc snapshot {form.table} reads all of it"
            raise UsageError(f"{name} is a partition of {form.table}", hint=hint)
    if len(found) != 1:
        raise UsageError(
            f"{name} is {'no captured table' if not found else 'more than one captured table'}",
            hint=f"the tables are {', '.join(sorted(known)[:20])}; one that is new needs cdc init first",
        )
    return found[0]


def condition_on(text: str, schema: TableSchema) -> Condition:
    """The condition that a text is on a table. ConfigError when it is none, or names a column that is not captured,
    or is masked."""
    try:
        found = parse(text)
    except NoCondition as why:
        raise ConfigError(
            f"that is no condition on {schema.table}: {why}",
            hint="columns, literals, comparisons, in, between, like, is null, joined by and, or, not: "
            'see "Conditions" in snapshot/README.md',
        ) from None
    unknown = sorted(columns(found) - {column.name for column in schema.columns})
    if unknown:
        raise ConfigError(
            f"{schema.table} has no captured column {unknown[0]}",
            hint=f"its columns are {', '.join(column.name for column in schema.columns[:20])}",
        )
    masked = sorted(columns(found) & {column.name for column in schema.columns if column.mask is not None})
    if masked:
        raise ConfigError(
            f"{masked[0]} of {schema.table} is masked, and a condition on it would be noted in the log as it is",
            hint=f"name other columns, or read the whole table: cdc snapshot {schema.table}",
        )
    return found


def key_texts(keys: Sequence[Sequence[str]], schema: TableSchema) -> tuple[tuple[str, ...], ...]:
    """Keys as they were asked for. ConfigError when one has another number of columns than the table's key, or that key
    is masked."""
    if schema.masked_key:
        raise ConfigError(
            f"the key of {schema.table} is masked, so no row can be asked for by it",
            hint=f"ask for rows by a condition on other columns, or for all: cdc snapshot {schema.table}",
        )
    for key in keys:
        if len(key) != len(schema.key):
            raise ConfigError(
                f"the key of {schema.table} has {len(schema.key)} columns, one of --keys has {len(key)}",
                hint=f"write {':'.join(column.name for column in schema.key)}, as the stores do",
            )
    return tuple(tuple(key) for key in keys)


def first_requests(documents: Mapping[bytes, bytes], serial: int) -> list[RequestState]:
    """A request for the first rows of each table that was neither read nor asked for.

    ConfigError before ``cdc init``, UsageError when the first snapshot has begun already.
    """
    head, topics = SnapshotState.find(documents), TopicsState.find(documents)
    if topics is None:
        raise ConfigError("the pipeline has no topics yet", hint="cdc init makes them")
    if head is not None and (head.state != "complete" or head.rows):
        raise UsageError(
            "the first snapshot has begun with its rows, so windows cannot take its place",
            hint="cdc snapshot goes on with it",
        )
    known = {one.table for one in find_all(documents, ReadingState) if one.first and one.state == "done"}
    known |= {one.table for one in requests_of(documents) if one.first}
    return [
        RequestState(
            id=f"snapshot:{table}",
            table=table,
            after_lsn=0,
            reason=f"{table} has its first rows to come",
            serial=serial,
            first=True,
        )
        for table in topics.tables
        if table not in known
    ]


def commands_for(documents: Mapping[bytes, bytes], tables: Sequence[str], state: str) -> list[tuple[str, CommandState]]:
    """Table and command of each request on these tables, of all without any."""
    names = {str(captured_table(documents, name)) for name in tables}
    found = [one for one in requests_of(documents) if not names or one.table in names]
    return [(one.table, CommandState(id=one.id, serial=one.serial, state=state)) for one in found]


def given_up(documents: Mapping[bytes, bytes], tables: Sequence[str]) -> list[ReadingState]:
    """The readings on these tables, on all without any, that failed and of which no request is left."""
    names = {str(captured_table(documents, name)) for name in tables}
    asked = {one.id for one in requests_of(documents)}
    states = find_all(documents, ReadingState)
    return [
        one for one in states if one.state == "failed" and one.id not in asked and (not names or one.table in names)
    ]


def progress_of(documents: Mapping[bytes, bytes], requests: Sequence[RequestState]) -> list[ReadingState | None]:
    """How far each request is, None where nobody has taken it up."""
    states = {one.id: one for one in find_all(documents, ReadingState)}
    newest = {one.id: one.serial for one in requests_of(documents)}
    found = []
    for one in requests:
        state = states.get(one.id)
        # One asked for again meanwhile, by a catalog watch or as its table is followed again, has a newer serial: the
        # older one ends as cancelled, and the newer one is read.
        replaced = state is not None and state.state == "cancelled" and newest.get(one.id, 0) > state.serial
        found.append(state if state is not None and state.serial >= one.serial and not replaced else None)
    return found
