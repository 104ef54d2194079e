"""The topics of a pipeline filled by hand as Debezium's connector fills them, with embedded schemas or without."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import orjson

from cdc.record.topic_names import partition_of
from tests.integration.spark.handmade import HandMadeLog

_SOURCE_FIELDS = {
    "version": "string", "connector": "string", "name": "string", "ts_ms": "int64", "snapshot": "string",
    "db": "string", "sequence": "string", "ts_us": "int64", "ts_ns": "int64", "schema": "string", "table": "string",
    "txId": "int64", "lsn": "int64", "xmin": "int64", "origin": "string", "origin_lsn": "int64",
}  # fmt: skip
_COLUMNS = (("id", "int64", "INT8", "19", "0"), ("status", "string", "TEXT", "2147483647", "0"))
_ROW_SCALE = 2


@dataclass
class EmbeddedLog(HandMadeLog):
    """``public.orders`` by Debezium's connector: its envelopes, in its order, without headers of ours.

    ``schemas``: whether each record embeds its own.
    """

    schemas: bool = True

    def document(self, sinks: Mapping[str, Mapping[str, Any]], **spark: Any) -> dict[str, Any]:
        found = super().document(sinks, **spark)
        # Nobody is asked at this address: the section says that the topics may hold Debezium's records.
        return {**found, "debezium": {"url": "http://127.0.0.1:1", "database_password": "env:NONE"}}

    def put(self, rows: Iterable[Mapping[str, Any]], *, table: str = "orders", op: str = "u") -> None:
        shape = self.shapes[table]
        shown = self.rows.setdefault(table, {})
        for row in rows:
            self.lsn += 64
            key = orjson.dumps({"id": row["id"]})
            wrapped = _wrapped(_KEY, key) if self.schemas else key
            if len(row) == 1:
                shown.pop(str(row["id"]), None)
                self._produce(shape.topic, key, wrapped, self.value({"id": row["id"]}, None, "d"))
                self._produce(shape.topic, key, wrapped, None)
            else:
                shown[str(row["id"])] = dict(row)
                self._produce(shape.topic, key, wrapped, self.value(None, self._wire(row), op))
        self.flush()

    def value(
        self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, op: str, snapshot: str = "false"
    ) -> bytes:
        """A record's value at the position reached."""
        stamp = 1_760_000_000_000
        source = {
            "version": "3.7.0.Final", "connector": "postgresql", "name": self.name, "ts_ms": stamp,
            "snapshot": snapshot, "db": "shop", "sequence": f'["{self.lsn - 64}","{self.lsn}"]',
            "ts_us": stamp * 1000, "ts_ns": stamp * 1_000_000, "schema": "public", "table": "orders", "txId": 700,
            "lsn": self.lsn, "xmin": None, "origin": None, "origin_lsn": None,
        }  # fmt: skip
        envelope = {
            "before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": stamp,
            "ts_us": stamp * 1000, "ts_ns": stamp * 1_000_000,
        }  # fmt: skip
        text = orjson.dumps(envelope)
        return _wrapped(_envelope_schema(), text) if self.schemas else text

    def _wire(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Decimals as bytes, by the connector's defaults, where the schema says so."""
        if not self.schemas:
            return dict(row)
        unscaled = int(Decimal(row["total"]).scaleb(_ROW_SCALE))
        size = unscaled.bit_length() // 8 + 1
        return {**row, "total": b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()}

    def _produce(self, topic: str, key: bytes, wrapped: bytes, value: bytes | None) -> None:
        where = partition_of(key, self.partitions)
        while True:
            try:
                self._producer.produce(topic, value, wrapped, where)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)


def _wrapped(schema: bytes, payload: bytes) -> bytes:
    return b'{"schema":%b,"payload":%b}' % (schema, payload)


def _field(field: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, **more, "field": field}


_KEY = orjson.dumps(
    {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "optional": False}
)


@cache
def _envelope_schema() -> bytes:
    row = [_field(name, kind, parameters=_told(name, source, *size)) for name, kind, source, *size in _COLUMNS]
    total = {"scale": str(_ROW_SCALE), "connect.decimal.precision": "12", **_told("total", "NUMERIC", "12", "2")}
    decimal = "org.apache.kafka.connect.data.Decimal"
    row.append(_field("total", "bytes", name=decimal, version=1, parameters=total))
    source = [_field(name, kind) for name, kind in _SOURCE_FIELDS.items()]
    block = [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")]
    fields = [
        _field("before", "struct", fields=row, name="shop.public.orders.Value"),
        _field("after", "struct", fields=row, name="shop.public.orders.Value"),
        _field("source", "struct", fields=source, name="io.debezium.connector.postgresql.Source", version=1),
        _field("transaction", "struct", fields=block, name="event.block", version=1),
        _field("op", "string"), _field("ts_ms", "int64"), _field("ts_us", "int64"), _field("ts_ns", "int64"),
    ]  # fmt: skip
    return orjson.dumps(
        {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.orders.Envelope", "version": 2}
    )


def _told(name: str, source: str, length: str, scale: str) -> dict[str, str]:
    prefix = "__debezium.source.column."
    return {f"{prefix}type": source, f"{prefix}length": length, f"{prefix}scale": scale, f"{prefix}name": name}
