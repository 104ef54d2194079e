"""Tables as a look at the catalog would find them."""

from __future__ import annotations

from cdc.record.topic_names import TableName
from snapshot.source.planned_tables import LeafForm, TableForm

BLOCK = 8192


def leaf(oid: int, blocks: int, *, toast_bytes: int = 0, filenode: int | None = None) -> LeafForm:
    return LeafForm(
        oid=oid,
        table=TableName("public", f"leaf{oid}"),
        filenode=filenode or oid,
        heap_blocks=blocks,
        size_bytes=blocks * BLOCK + toast_bytes,
    )


def look(*leaves: LeafForm, name: str = "orders", oid: int = 1, version: int = 1) -> TableForm:
    return TableForm(
        table=TableName("public", name), topic=f"shop.public.{name}", oid=oid, version=version, leaves=leaves
    )
