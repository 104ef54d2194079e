"""The requests of the state topic, when each may be read, and in which chunks."""

from __future__ import annotations

import logging
from typing import Protocol

import orjson
import psycopg

from cdc.capture.table_masks import masks_of
from cdc.capture.windows import Windows
from cdc.process.clock import Clock
from cdc.process.errors import ConfigError, DamagedError, FormatError, SourceError
from cdc.record.state import CommandState, ReadingState, RequestState, what_of, with_command
from connectors.postgres.encoding.encoder import compile_table
from snapshot.later.catalog_watch import CatalogWatch
from snapshot.later.chunk_queue import TooLarge
from snapshot.later.reader_pool import nudge
from snapshot.later.table_reading import TableReading
from snapshot.source.inspection import Locked, inspect
from snapshot.source.planned_tables import InspectedTable
from snapshot.source.ports import LaterEdges, Session
from snapshot.source.read_transaction import sqlstate

log = logging.getLogger(__name__)


class StateView:
    """``records``: all, the newest of each key. ``requests`` by key, ``commands`` and ``states`` by id are kept apart,
    because they are read often."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.requests: dict[bytes, RequestState] = {}
        self.commands: dict[str, CommandState] = {}
        self.states: dict[str, ReadingState] = {}

    def apply(self, key: bytes, value: bytes | None) -> str:
        """Take one record in. The id of the reading that it removes, or an empty text."""
        what = what_of(key)
        if value is not None:
            self.records[key] = value
            self._read(what, key, value)
            return ""
        self.records.pop(key, None)
        self.requests.pop(key, None)
        if what not in (ReadingState.WHAT, CommandState.WHAT):
            return ""
        name = str(orjson.loads(key).get("id"))
        if what == CommandState.WHAT:
            self.commands.pop(name, None)
            return ""
        self.states.pop(name, None)
        return name

    def requests_now(self) -> list[RequestState]:
        """Every request, in the state that a command has given it."""
        return [with_command(request, self.commands.get(request.id)) for request in self.requests.values()]

    def removals(self, name: str, serial: int) -> list[tuple[bytes, None]]:
        """The records that remove a request that is over, and the command on it. A newer request of the id stays."""
        request = next((one for one in self.requests.values() if (one.id, one.serial) == (name, serial)), None)
        command = self.commands.get(name)
        found = [request] if request is not None else []
        return [
            (one.key(), None)
            for one in (*found, *([command] if command is not None and command.serial == serial else []))
        ]

    def stale_commands(self) -> list[CommandState]:
        """Commands that came too late: their request is over, or another."""
        serials = {request.id: request.serial for request in self.requests.values()}
        return [command for command in self.commands.values() if serials.get(command.id) != command.serial]

    def _read(self, what: str, key: bytes, value: bytes) -> None:
        if what == ReadingState.WHAT:
            found = ReadingState.from_json(value)
            self.states[found.id] = found
            return
        if what not in (RequestState.WHAT, CommandState.WHAT):
            return
        try:
            if what == RequestState.WHAT:
                self.requests[key] = RequestState.from_json(value)
            else:
                command = CommandState.from_json(value)
                self.commands[command.id] = command
        except (DamagedError, FormatError):
            # A record under a request's key that is no request is not carried out.
            self.requests.pop(key, None)
            log.warning("request_unreadable", extra={"key_bytes": len(key), "value_bytes": len(value)})


_RETRY_S = 1.0
_ASK_S = 1.0
_NUDGE_S = 1.0


class LookNow(Protocol):
    """Looks at the catalog, and notes what is found."""

    def __call__(self, watch: CatalogWatch, *, now: bool) -> None: ...


class NotNow(Exception):
    """The table cannot be planned yet. The argument says why."""


class Planner:
    """One session's."""

    def __init__(self, edges: LaterEdges, windows: Windows, clock: Clock, inspect: LookNow) -> None:
        self._edges = edges
        self._windows = windows
        self._clock = clock
        self._look_now = inspect
        self._settings = edges.settings.snapshot
        self._ask_s = self._nudge_s = 0.0
        self._retained_bytes: int | None = None

    def why_wait(self, session: Session, reading: TableReading, watch: CatalogWatch) -> str:
        """The cause that a request waits for, empty for none: then it is planned. ConfigError when it can never be
        read."""
        try:
            self._require_followed(reading)
            self._require_passed(session, reading)
            self._require_little_wal(session)
            if reading.chunks is None:
                self._plan(session, reading, watch)
        except NotNow as why:
            return str(why)
        except psycopg.Error as error:
            if session.closed:
                raise
            return f"the catalog cannot be read now: Postgres answers {sqlstate(error)}"
        return ""

    def _require_followed(self, reading: TableReading) -> None:
        """Rows of a table that is set aside would be read without what the stream says of them meanwhile."""
        if why := self._edges.topics.hindrance(reading.request):
            raise NotNow(why)

    def _require_passed(self, session: Session, reading: TableReading) -> None:
        if self._windows.reached <= max(reading.after_lsn, self._windows.after_lsn):
            self._nudge(session)
            raise NotNow("the stream has not come to the request yet")

    def _require_little_wal(self, session: Session) -> None:
        retained = self._retained(session)
        if retained is not None and retained > self._settings.max_retained_wal:
            raise NotNow(f"the slot keeps {retained:,} bytes of WAL, more than [snapshot] max_retained_wal")

    def _plan(self, session: Session, reading: TableReading, watch: CatalogWatch) -> None:
        if reading.out:
            raise NotNow("chunks of an earlier plan are on their way")
        self._look_now(watch, now=True)
        self._require_topic(reading)
        inspected = self._inspected(session, reading)
        if not watch.published(reading.request.table):
            raise NotNow(f"{reading.request.table} is not in the publication: cdc init adds it")
        name, masks = self._edges.settings.name, masks_of(self._edges.settings)
        encoder = compile_table(inspected.schema, name=name, database=session.info.dbname, masks=masks)
        version = session.info.server_version
        try:
            reading.plan(inspected, encoder, window_bytes=self._settings.window_bytes, server_version=version)
        except TooLarge as leaf:
            raise ConfigError(
                f"{leaf} cannot be read in chunks with rights on columns alone", hint="grant select on it"
            ) from None
        reading.awaited = watch.barrier(reading.request.table)
        log.info("reread_begins", extra={"table": reading.request.table, "why": reading.request.reason})

    def _require_topic(self, reading: TableReading) -> None:
        topics = self._edges.topics
        if topics.topic(reading.table) is None:
            topics.refresh()
        if topics.topic(reading.table) is None:
            raise NotNow(f"{reading.request.table} is not captured: list it in [source] tables, then cdc init")

    def _inspected(self, session: Session, reading: TableReading) -> InspectedTable:
        table = reading.request.table
        try:
            inspection = inspect(self._edges, session, self._edges.shapes, topics=None, only=[table])
        except Locked as error:
            reading.not_before_s = self._clock.monotonic() + _RETRY_S
            raise NotNow(error.message) from None
        except ConfigError as error:
            # Of another table, perhaps: it passes when the settings and the source fit again.
            raise NotNow(error.message) from None
        except SourceError as error:
            if session.closed:
                raise
            raise NotNow(error.message) from None
        inspected = inspection.tables.get(table)
        if inspected is None:
            raise ConfigError(f"{table} is gone from the source")
        return inspected

    def _retained(self, session: Session) -> int | None:
        now_s = self._clock.monotonic()
        if now_s >= self._ask_s:
            self._ask_s = now_s + _ASK_S
            slot = self._edges.source.facts(session)[1]
            self._retained_bytes = slot.retained_bytes if slot is not None else None
        return self._retained_bytes

    def _nudge(self, session: Session) -> None:
        """An idle server writes nothing that the stream could pass: write something, now and then."""
        now_s = self._clock.monotonic()
        if now_s >= self._nudge_s:
            self._nudge_s = now_s + _NUDGE_S
            nudge(session)
