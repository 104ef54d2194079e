"""The table that most of the contract is about."""

from __future__ import annotations

import orjson

from sinks.contract.port import OpenSink
from tests.contract.stores import live
from tests.contract.topics import ORDERS, Shapes

SHAPES = Shapes(ORDERS)


def order(number: int, status: str = "open") -> dict[str, object]:
    return {"id": number, "status": status, "note": None}


def statuses(sink: OpenSink) -> dict[str, str]:
    return {key: orjson.loads(row)[1] for key, row in live(sink, ORDERS).items()}
