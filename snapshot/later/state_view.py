"""The requests of the state topic, as its records come."""

from __future__ import annotations

import logging

import orjson

from cdc.errors import DamagedError, FormatError
from cdc.state import CommandState, ReadingState, RequestState, what_of, with_command

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
