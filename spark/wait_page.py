"""``GET /wait?sink=&lsn=``: whether a store shows a token, for programs of any language, within a bounded time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import BoundedSemaphore, Lock
from typing import Any

from cdc.answering import Reply
from cdc.errors import CdcError, UsageError
from cdc.freshness.opened_stores import OpenedStore
from cdc.freshness.wanted import NotShown, WaitUseless
from cdc.lsn import Lsn
from cdc.progress import Watermark
from cdc.tokens import Token
from sinks.registry import SinkSpec
from sinks.store_freshness import StoreFreshness

TIMEOUT_S, LONGEST_S = 5.0, 30.0
MOST = 64
"""So many requests wait at once. Each has a thread."""
_PARAMETERS = {"sink", "lsn", "timeout", "tables"}


class WaitPage:
    """Answers from the stores themselves, on connections beside those that feed them: a store that was put back or
    emptied says so at once. The first question about a store connects to it. Any thread."""

    def __init__(self, specs: Mapping[str, SinkSpec], connect: Callable[[SinkSpec], OpenedStore]) -> None:
        self._specs = specs
        self._connect = connect
        self._lock = Lock()
        self._stores: dict[str, StoreFreshness] = {}
        self._room = BoundedSemaphore(MOST)

    def answer(self, asked: Mapping[str, str]) -> Reply:
        """200 once the store shows the token, 504 after the time, 409 where waiting is of no use, 503 where the store
        does not answer, 429 while too many wait, 404 for another sink and 400 for a request that does not fit."""
        try:
            sink, token, timeout_s, tables = _read(asked)
        except UsageError as wrong:
            return _no(HTTPStatus.BAD_REQUEST, wrong)
        if sink not in self._specs:
            known = ", ".join(sorted(self._specs))
            return _no(
                HTTPStatus.NOT_FOUND, UsageError("this application feeds no such sink", hint=f"it feeds {known}")
            )
        if not self._room.acquire(blocking=False):
            return _no(
                HTTPStatus.TOO_MANY_REQUESTS, UsageError(f"{MOST} requests wait already", hint="ask again later")
            )
        try:
            shown = self._store(sink).wait_for(token, timeout_s, tables)
            return Reply(HTTPStatus.OK, {"shown": True, **_said(shown)})
        except CdcError as refusal:
            return _no(_status(refusal), refusal)
        finally:
            self._room.release()

    def close(self) -> None:
        """Close the connections. Raises nothing."""
        with self._lock:
            stores, self._stores = self._stores, {}
        for store in stores.values():
            store.close()

    def _store(self, sink: str) -> StoreFreshness:
        with self._lock:
            if sink not in self._stores:
                self._stores[sink] = StoreFreshness.of(self._specs[sink], sink, self._connect)
            return self._stores[sink]


def _read(asked: Mapping[str, str]) -> tuple[str, Token | Lsn, float, list[str]]:
    """Sink, token or LSN, seconds and tables of a request. UsageError where it has others, or they do not fit."""
    strange = sorted(asked.keys() - _PARAMETERS)
    if strange or not {"sink", "lsn"} <= asked.keys():
        raise UsageError(
            "the parameters do not fit", hint="ask /wait?sink=NAME&lsn=TOKEN, perhaps &timeout=5&tables=A,B"
        )
    text = asked["lsn"]
    try:
        token = Token.parse(text) if ":" in text else Lsn.parse(text)
    except ValueError:
        raise UsageError("lsn is neither a token nor an LSN", hint="it looks like 0/16B3D48") from None
    tables = [table for table in asked.get("tables", "").split(",") if table]
    return asked["sink"], token, _seconds(asked.get("timeout", f"{TIMEOUT_S}")), tables


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found <= LONGEST_S:
        raise UsageError("timeout is no number of seconds", hint=f"from 0 to {LONGEST_S:g}")
    return found


def _said(watermark: Watermark) -> dict[str, Any]:
    lineage = watermark.lineage
    return {
        "lsn": str(Lsn(watermark.lsn)),
        "epoch": watermark.epoch,
        "lineage": str(lineage) if lineage is not None else None,
    }


def _status(refusal: CdcError) -> HTTPStatus:
    match refusal:
        case WaitUseless():
            return HTTPStatus.CONFLICT
        case NotShown():
            return HTTPStatus.GATEWAY_TIMEOUT
        case _:
            return HTTPStatus.SERVICE_UNAVAILABLE


def _no(status: HTTPStatus, error: CdcError) -> Reply:
    return Reply(status, {"shown": False, "reason": error.message, "hint": error.hint})
