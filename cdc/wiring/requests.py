"""Tables to be read again while the stream runs: asked for, followed, paused; see snapshot/later.py for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from cdc.clock import Clock
from cdc.errors import ConfigError, UsageError
from cdc.state import RequestState, RereadState, SnapshotState, TopicsState, WishState, find_all, requests_of
from cdc.topic import TableName
from cdc.wiring import open_schemas, open_source, open_state, require_broker

if TYPE_CHECKING:
    from cdc.schema import TableSchema
    from cdc.settings import Settings


def ask(
    settings: Settings, tables: Sequence[str], *, where: str | None, keys: Sequence[str] | None, clock: Clock
) -> list[RequestState]:
    """Write a request for each table; one for all of a table that is under way already is joined, not begun anew.

    ``where``: see :mod:`cdc.condition`; ``keys``: as stores write them. ConfigError, UsageError or SourceError when a
    request could not be carried out, and then none is written.
    """
    from cdc.condition import show
    from snapshot.condition import condition_on
    from snapshot.window import check_condition, key_texts, text

    require_broker(settings)
    state = open_state(settings)
    held = state.read()
    captured = {name: _captured(held, name) for name in tables}
    under_way = {one.id: one for one in requests_of(held)}
    asked, joined = [], []
    with closing(open_source(settings, application_name="cdc snapshot")) as session:
        row = session.execute(text("insert_lsn")).fetchone()
        after_lsn = int(row[0]) if row is not None else 0
        for table in captured.values():
            serial = clock.now_ns()
            request = RequestState(
                id=f"snapshot:{table}",
                table=str(table),
                after_lsn=after_lsn,
                reason=f"{table} was asked for",
                serial=serial,
            )
            if where is not None:
                wanted = condition_on(where, _shape(settings, table))
                check_condition(session, table, wanted)
                request = replace(request, id=f"snapshot:{table}:where:{serial}", where=show(wanted))
            elif keys is not None:
                split = [[unquote(part) for part in key.split(":")] for key in keys]
                key_texts(split, _shape(settings, table))
                request = replace(request, id=f"snapshot:{table}:keys:{serial}", keys=split)
            elif request.id in under_way:
                joined.append(under_way[request.id])
                continue
            asked.append(request)
    state.write([(request.key(), request.to_json()) for request in asked])
    return asked + joined


def ask_first(settings: Settings, clock: Clock) -> None:
    """Ask for every table's first rows, before there is a slot. UsageError when the first snapshot has begun already.

    Asking twice is asking once: a table that has been read, or is asked for, is left alone.
    """
    require_broker(settings)
    state = open_state(settings)
    held = state.read()
    head, topics = SnapshotState.find(held), TopicsState.find(held)
    if topics is None:
        raise ConfigError("the pipeline has no topics yet", hint="cdc init makes them")
    if head is not None and (head.state != "complete" or head.rows):
        raise UsageError(
            "the first snapshot has begun with its rows, so windows cannot take its place",
            hint="cdc snapshot goes on with it",
        )
    read = {one.table for one in find_all(held, RereadState) if one.first and one.state == "done"}
    known = read | {one.table for one in requests_of(held) if one.first}
    asked = [
        RequestState(
            id=f"snapshot:{table}",
            table=table,
            after_lsn=0,
            reason=f"{table} has its first rows to come",
            serial=clock.now_ns(),
            first=True,
        )
        for table in topics.tables
        if table not in known
    ]
    state.write([(one.key(), one.to_json()) for one in asked])


def wish(settings: Settings, tables: Sequence[str], state: str) -> list[str]:
    """Set the wish of every request on these tables (all without any); sentences that say so.

    UsageError when there is none.
    """
    require_broker(settings)
    topic = open_state(settings)
    held = topic.read()
    names = {str(_captured(held, name)) for name in tables}
    found = [one for one in requests_of(held) if not names or one.table in names]
    if not found:
        raise UsageError("no table is being read again", hint="cdc status shows what is under way")
    wishes = [WishState(id=one.id, serial=one.serial, state=state) for one in found]
    topic.write([(one.key(), one.to_json()) for one in wishes])
    return [f"{one.table}: {state}" for one in found]


def look(settings: Settings, requests: Sequence[RequestState]) -> list[RereadState | None]:
    """How far each request is, None where nobody has taken it up."""
    held = {one.id: one for one in find_all(open_state(settings).read(), RereadState)}
    # One asked for again meanwhile, by a catalog watch, goes under a newer serial.
    return [
        found if (found := held.get(one.id)) is not None and found.serial >= one.serial else None for one in requests
    ]


def _captured(held: dict[bytes, bytes], name: str) -> TableName:
    head, topics = SnapshotState.find(held), TopicsState.find(held)
    if topics is None or head is None or head.state != "complete":
        raise UsageError("the first snapshot takes every table", hint="cdc snapshot, without a table")
    known = {table: TableName(*table.split(".", 1)) for table in topics.tables}
    if name in known:
        return known[name]
    found = [table for table in known.values() if table.table == name]
    if len(found) != 1:
        raise UsageError(
            f"{name} is {'no captured table' if not found else 'more than one captured table'}",
            hint=f"the tables are {', '.join(sorted(known)[:20])}; one that is new needs cdc init first",
        )
    return found[0]


def _shape(settings: Settings, table: TableName) -> TableSchema:
    shape = open_schemas(settings).latest(table)
    if shape is None:
        raise ConfigError(f"the shape of {table} is not known", hint="cdc init registers it")
    return shape
