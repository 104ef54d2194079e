"""Rows of every type, as both warehouses get and show them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from cdc.record.progress import Watermark
from tests.contract.topics import ORDERS, Shapes, column, numeric, shape

SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": None}
MARK = Watermark(epoch=1, lsn=99, offsets={ORDERS.topic: {0: 1}})
TYPED = shape(
    column("id", "int8", key=1),
    numeric("total", 10, 2),
    column("at", "timestamptz"),
    column("local", "timestamp"),
    column("d", "date"),
    column("doc", "jsonb"),
    column("tags", "int4", array=True),
    column("raw", "bytea"),
    table="typed",
)
ORDINARY = {
    "id": 1,
    "total": "10.50",
    "at": "2016-11-04T11:51:30.123456Z",
    "local": "2016-11-04T13:51:30Z",
    "d": "2016-11-04Z",
    "doc": '{"a": 1}',
    "tags": [1, None],
    "raw": "AP8=",
}
ODD = {**ORDINARY, "id": 2, "total": "NaN", "at": "infinity", "d": "-0043-03-15Z", "tags": [[1], [2]]}
VALUES = {
    "id": 1,
    "total": Decimal("10.50"),
    "at": datetime(2016, 11, 4, 11, 51, 30, 123456, UTC),
    "local": datetime(2016, 11, 4, 13, 51, 30),
    "d": date(2016, 11, 4),
    "doc": '{"a": 1}',
    "tags": [1, None],
    "raw": b"\x00\xff",
}
