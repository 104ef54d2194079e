"""One row at a time, for tests: the product makes an object for each table and asks that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.record.schema import TableSchema
from cdc.wire.canonical import CanonicalTable
from cdc.wire.plain import PlainTable


def canonical_row(plain_json: bytes, schema: TableSchema) -> bytes:
    """One row's canonical text."""
    return CanonicalTable(schema).row(plain_json)


def plain_row(after: Mapping[str, Any], schema: TableSchema) -> dict[str, Any]:
    """One row as plain values."""
    return PlainTable(schema).values(after)


def store_key(schema: TableSchema, key_json: bytes) -> str:
    """A row's key in the stores. ValueError where the JSON is not a key of this table."""
    return PlainTable(schema).key(key_json)
