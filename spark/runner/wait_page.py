"""``GET /wait?sink=&lsn=``: whether a store shows a token, for programs of any language, within a bounded time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import BoundedSemaphore, Lock
from typing import Any, NamedTuple

from cdc.figures.http_server import Reply
from cdc.freshness.bounded_ports import OpenedStore
from cdc.freshness.rules import EpochLsn, NotShown, WaitUseless, named_tables
from cdc.process.errors import CdcError, UsageError
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.tokens import Token
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_freshness import StoreFreshness

TIMEOUT_S, LONGEST_S = 5.0, 30.0
MOST = 64
"""So many requests wait for a sink at once. Each has a thread."""
_PARAMETERS = {"sink", "lsn", "epoch", "timeout", "tables"}
_EPOCH = re.compile("[1-9][0-9]{0,8}")


class _Request(NamedTuple):
    sink: str
    token: Token | EpochLsn
    timeout_s: float
    tables: frozenset[str]


class WaitPage:
    """Answers from the stores themselves, on connections beside those that feed them: a store that was put back or
    emptied says so at once. The first question about a store connects to it. Any thread."""

    def __init__(self, specs: Mapping[str, SinkSpec], connect: Callable[[SinkSpec], OpenedStore]) -> None:
        self._specs = specs
        self._connect = connect
        self._lock = Lock()
        self._stores: dict[str, StoreFreshness] = {}
        # Each sink has its own: one whose store is far behind leaves the others their answers.
        self._rooms = {sink: BoundedSemaphore(MOST) for sink in specs}

    def answer(self, asked: Mapping[str, str], gone: Callable[[], bool]) -> Reply:
        """200 once the store shows the token, 504 after the time, 409 where waiting is of no use, 503 where the store
        does not answer, 429 while too many wait, 404 for another sink and 400 for a request that does not fit.

        ``gone``: whether the client has left. Nobody waits for it then.
        """
        try:
            request = _read(asked)
        except UsageError as wrong:
            return _no(HTTPStatus.BAD_REQUEST, wrong)
        room = self._rooms.get(request.sink)
        if room is None:
            known = ", ".join(sorted(self._specs))
            return _no(
                HTTPStatus.NOT_FOUND, UsageError("this application feeds no such sink", hint=f"it feeds {known}")
            )
        if not room.acquire(blocking=False):
            return _no(
                HTTPStatus.TOO_MANY_REQUESTS,
                UsageError(f"{MOST} requests wait for this sink already", hint="ask again later"),
            )
        try:
            shown = self._store(request.sink).wait_for(request.token, request.timeout_s, request.tables, gone)
            return Reply(HTTPStatus.OK, {"shown": True, **_said(shown)})
        except CdcError as refusal:
            return _no(_status(refusal), refusal)
        finally:
            room.release()

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


def _read(asked: Mapping[str, str]) -> _Request:
    """A request's parameters. UsageError where it has others, or they do not fit."""
    strange = sorted(asked.keys() - _PARAMETERS)
    if strange or not {"sink", "lsn"} <= asked.keys():
        raise UsageError(
            "the parameters do not fit", hint="ask /wait?sink=NAME&lsn=TOKEN, perhaps &timeout=5&tables=A,B"
        )
    tables = named_tables(asked["tables"].split(",")) if "tables" in asked else frozenset[str]()
    token = _token(asked["lsn"], asked.get("epoch"))
    return _Request(asked["sink"], token, _seconds(asked.get("timeout", f"{TIMEOUT_S}")), tables)


def _token(text: str, epoch: str | None) -> Token | EpochLsn:
    """A token, or an LSN with the pipeline's epoch: an LSN alone may be any server's."""
    try:
        found = Token.parse(text) if ":" in text else Lsn.parse(text)
    except ValueError:
        raise UsageError(
            "lsn is neither a token nor an LSN", hint="a token looks like 7301444403801980345/1:0/16B3D48"
        ) from None
    if isinstance(found, Token):
        if epoch is None:
            return found
        raise UsageError("a token needs no epoch", hint="leave epoch away: the token names its server")
    if epoch is None or not _EPOCH.fullmatch(epoch):
        raise UsageError(
            "an LSN alone may be of any server",
            hint="ask with the token, SYSTEM/TIMELINE:LSN, or set the pipeline's epoch beside the LSN: &epoch=1",
        )
    return EpochLsn(int(epoch), found)


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
