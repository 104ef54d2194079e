"""Writes documents: bulk bodies of some megabytes, a few on their way at once, and the fate of each item is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import tenacity

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from sinks.contract.port import StoreAway
from sinks.contract.store_connection import brief
from sinks.search.search_client import BLOCK, IN_FLIGHT, BulkUnanswered, Conflict, IndexBlocked, IndexGone

declare("search_body_taken")

_BODY_BYTES = 6 * 1024**2
_FAILED, _STALE, _UNAVAILABLE = 300, 409, 503
_BUSY = frozenset((429, 500, 502, 503, 504))
_ATTEMPTS = 10


class Item(NamedTuple):
    """One document to write: its number for the caller, and its two lines."""

    number: int
    lines: bytes


@dataclass(slots=True)
class Fates:
    """The fates of items, by number: stale (a newer version is there), refused with why. All others written."""

    stale: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)


class Bulk(Protocol):
    """Takes bulk bodies: :class:`sinks.search.search_client.SearchClient`. Several threads may call it at once."""

    store: str

    def bulk(self, body: bytes, *, part: bool = False) -> list[dict[str, Any]]:
        """The items in order: ``status`` and, where it failed, ``error``. Conflict when it takes none,
        BulkUnanswered when it goes on giving no answer. ``part``: of a body that was not answered."""

    def takes(self, lines: bytes) -> bool:
        """Whether the server answers other writes into the index of an item's lines."""


class BulkWriter:
    """Sends items. They come back in no order, so they must be of different documents."""

    def __init__(self, client: Bulk, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._pool = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="cdc-bulk")

    def write(self, items: Iterator[Item]) -> Fates:
        """Return when the server has answered for each. StoreAway when it stays away, Gone or Blocked for an index
        that is gone or closed."""
        fates = Fates()
        flying: deque[Future[Fates]] = deque()
        try:
            for body in _bodies(items):
                if len(flying) == IN_FLIGHT:
                    _add(fates, flying.popleft().result())
                flying.append(self._pool.submit(self._send, body))
            while flying:
                _add(fates, flying.popleft().result())
        finally:
            for late in flying:
                late.cancel()
        return fates

    def close(self) -> None:
        """End its threads. Items that were not sent yet are dropped."""
        self._pool.shutdown(cancel_futures=True)

    def _send(self, items: Sequence[Item], *, part: bool = False) -> Fates:
        """One body. One that the server cannot read, or never answers, is halved until the item is found that it is
        because of."""
        try:
            return self._patiently(items, part)
        except Conflict as conflict:
            why = f"the index refuses it: {conflict.kind}"
        except BulkUnanswered:
            if not self._client.takes(items[0].lines):
                raise
            part, why = True, "the server does not answer a request that holds it, and answers others"
        if len(items) == 1:
            return Fates(refused={items[0].number: why})
        half = len(items) // 2
        fates = self._send(items[:half], part=part)
        _add(fates, self._send(items[half:], part=part))
        return fates

    def _patiently(self, items: Sequence[Item], part: bool) -> Fates:
        """One body. Items that the server was too busy for again, and again."""
        fates = Fates()
        left = list(items)

        def send() -> bool:
            nonlocal left
            answers = self._client.bulk(b"".join([item.lines for item in left]), part=part)
            crash_point("search_body_taken")
            busy: list[Item] = []
            for item, answer in zip(left, answers, strict=True):
                status = answer["status"]
                if status < _FAILED:
                    continue
                _check_index(self._client.store, answer)
                if status == _STALE:
                    fates.stale.add(item.number)
                elif status in _BUSY:
                    busy.append(item)
                else:
                    fates.refused[item.number] = _why(answer)
            left = busy
            return not left

        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=5),
            retry=tenacity.retry_if_result(lambda done: not done),
            sleep=self._clock.sleep,
        )
        try:
            retrying(send)
        except tenacity.RetryError:
            raise StoreAway(
                f"{self._client.store} takes no more documents for now",
                hint="it is overloaded or has lost shards: look at its health and its disk",
            ) from None
        return fates


def _bodies(items: Iterator[Item]) -> Iterator[list[Item]]:
    body: list[Item] = []
    size = 0
    for item in items:
        if body and size + len(item.lines) > _BODY_BYTES:
            yield body
            body, size = [], 0
        body.append(item)
        size += len(item.lines)
    if body:
        yield body


def _add(fates: Fates, more: Fates) -> None:
    fates.stale |= more.stale
    fates.refused |= more.refused


def require_taken(store: str, answer: Mapping[str, Any]) -> None:
    """Raise for an item of a document of the sink's own that was not taken: StoreAway, unless it is because of its
    index."""
    if answer["status"] >= _FAILED:
        _check_index(store, answer)
        raise StoreAway(f"{store} takes no document: {_error_of(answer)[0]}", hint="look at its health and its disk")


def _check_index(store: str, answer: Mapping[str, Any]) -> None:
    """Gone or Blocked for an item that failed because of its index."""
    kind = _error_of(answer)[0]
    if kind == "index_not_found_exception":
        raise IndexGone(f"{store} has lost an index", hint="the sink makes a missing index anew and fills it")
    if kind == "index_closed_exception" or (kind == BLOCK and answer["status"] != _UNAVAILABLE):
        raise IndexBlocked(
            f"{store} takes no documents into an index: {kind}", hint="look at its disk and its index.blocks.*"
        )


def _why(answer: dict[str, object]) -> str:
    """Why an item was refused, without the values that the server quotes."""
    kind, reason = _error_of(answer)
    return f"the index refuses it: {kind}{_field_of(reason)}"


def _error_of(answer: Mapping[str, Any]) -> tuple[str, str]:
    error = answer.get("error")
    details = error if isinstance(error, dict) else {}
    return str(details.get("type", "unknown")), str(details.get("reason", ""))


def _field_of(reason: str) -> str:
    """The field that a mapping error names. The text behind it may be a value."""
    for before, after in (("failed to parse field [", "]"), ('term in field="', '"')):
        _, found, rest = reason.partition(before)
        if found:
            return f" in field {brief(rest.partition(after)[0])}"
    return ""
