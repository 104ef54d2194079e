"""NULLs of Debezium's Postgres connector that may stand for a value which did not change. Pure.

Without the row before (REPLICA IDENTITY FULL) Postgres sends no value of a column that did not change and is stored out
of line, and for some types Debezium writes NULL then. So it does in an update, and in the create of a row that has come
from another key. An update says whether it has the row before, and a create does not: the changes before it do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.wire.debezium.shape import Shape
from cdc.wire.format import CREATE_OP, DELETE_OP, UPDATE_OP
from cdc.wire.unavailable import NULL_OR_UNCHANGED


class OldRows:
    """The changes of one partition, in their order, by whether they have the row before. Can be pickled."""

    def __init__(self) -> None:
        self._whole = False

    def note(self, shape: Shape | None, payload: Mapping[str, Any]) -> None:
        """Note a change. A delete has the row before where a column has a value that would be NULL in a key alone."""
        before = payload.get("before")
        if payload["op"] == UPDATE_OP:
            self._whole = before is not None
        elif payload["op"] == DELETE_OP and shape is not None and isinstance(before, dict):
            self._whole |= any(before.get(name) is not None for name in shape.lacking)

    def unsaid(self, shape: Shape | None, payload: Mapping[str, Any], *, moved: bool) -> dict[str, Any]:
        """The columns of a row with such a NULL, and the mark in its place. ``moved``: it has come from another key."""
        if shape is None or not shape.silent or payload["source"].get("connector") != "postgresql":
            return {}
        from_other = moved and payload["op"] == CREATE_OP and not self._whole
        if not from_other and (payload["op"] != UPDATE_OP or payload.get("before") is not None):
            return {}
        after = payload["after"]
        return {name: NULL_OR_UNCHANGED for name in shape.silent if name in after and after[name] is None}
