"""Requests of one pipeline, over its ports. Each is one record of the state topic, and a call writes all or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote

from cdc.aside import asides_of
from cdc.clock import Clock
from cdc.condition import show
from cdc.errors import ConfigError, UsageError
from cdc.rereads.ports import RereadPorts, RereadSource
from cdc.rereads.rules import (
    captured_table,
    commands_for,
    condition_on,
    first_requests,
    given_up,
    key_texts,
    progress_of,
)
from cdc.schema import TableSchema
from cdc.state import ReadingState, RequestState, requests_of
from cdc.topic import TableName


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
                if request.id in under_way and request.whole and str(table) not in aside:
                    joined.append(under_way[request.id])
                else:
                    asked.append(request)
        self._ports.state.write([(request.key(), request.to_json()) for request in asked])
        return asked + joined

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
