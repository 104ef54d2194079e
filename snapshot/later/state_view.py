"""What the state topic says of requests, as its records come."""

from __future__ import annotations

import logging

import orjson

from cdc.errors import DamagedError, NewerError
from cdc.state import RequestState, RereadState, WishState, what_of, wished

log = logging.getLogger(__name__)


class Heard:
    """``records``: all, the newest of each key. ``requests`` by key, ``wishes`` and ``states`` by id are kept apart,
    because they are looked at often."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.requests: dict[bytes, RequestState] = {}
        self.wishes: dict[str, WishState] = {}
        self.states: dict[str, RereadState] = {}

    def hear(self, key: bytes, value: bytes | None) -> str:
        """Take one record in; the id of the reading that it removes, or an empty text."""
        what = what_of(key)
        if value is not None:
            self.records[key] = value
            self._read(what, key, value)
            return ""
        self.records.pop(key, None)
        self.requests.pop(key, None)
        if what not in (RereadState.WHAT, WishState.WHAT):
            return ""
        name = str(orjson.loads(key).get("id"))
        if what == WishState.WHAT:
            self.wishes.pop(name, None)
            return ""
        self.states.pop(name, None)
        return name

    def wished(self) -> list[RequestState]:
        """Every request, in the state that is wished for now."""
        return [wished(request, self.wishes.get(request.id)) for request in self.requests.values()]

    def over(self, name: str, serial: int) -> list[tuple[bytes, None]]:
        """What removes a request that is over, and the wish on it; a newer request of the id stays."""
        request = next((one for one in self.requests.values() if (one.id, one.serial) == (name, serial)), None)
        wish = self.wishes.get(name)
        found = [request] if request is not None else []
        return [(one.key(), None) for one in (*found, *([wish] if wish is not None and wish.serial == serial else []))]

    def void(self) -> list[WishState]:
        """Wishes that came too late: their request is over, or another."""
        serials = {request.id: request.serial for request in self.requests.values()}
        return [wish for wish in self.wishes.values() if serials.get(wish.id) != wish.serial]

    def _read(self, what: str, key: bytes, value: bytes) -> None:
        if what == RereadState.WHAT:
            found = RereadState.from_json(value)
            self.states[found.id] = found
            return
        if what not in (RequestState.WHAT, WishState.WHAT):
            return
        try:
            if what == RequestState.WHAT:
                self.requests[key] = RequestState.from_json(value)
            else:
                wish = WishState.from_json(value)
                self.wishes[wish.id] = wish
        except (DamagedError, NewerError):
            # What is no request, though it stands under a request's key, is not carried out (H111).
            self.requests.pop(key, None)
            log.warning("request_unreadable", extra={"key_bytes": len(key), "value_bytes": len(value)})
