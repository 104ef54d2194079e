"""What the state topic says of requests, as its records come."""

from __future__ import annotations

import logging

import orjson

from cdc.state import RequestState, RereadState, what_of

log = logging.getLogger(__name__)


class Heard:
    """``records``: all, the newest of each key. ``requests`` by key and ``states`` by id are kept apart, because they
    are looked at often."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.requests: dict[bytes, RequestState] = {}
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
        if what != RereadState.WHAT:
            return ""
        name = str(orjson.loads(key).get("id"))
        self.states.pop(name, None)
        return name

    def _read(self, what: str, key: bytes, value: bytes) -> None:
        if what == RereadState.WHAT:
            found = RereadState.from_json(value)
            self.states[found.id] = found
        elif what == RequestState.WHAT:
            try:
                self.requests[key] = RequestState.from_json(value)
            except (ValueError, TypeError):
                # What is no request, though it stands under a request's key, is not carried out (H111).
                self.requests.pop(key, None)
                log.warning("request_unreadable", extra={"key_bytes": len(key), "value_bytes": len(value)})
