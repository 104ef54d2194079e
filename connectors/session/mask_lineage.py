"""Partitions and children of tables with masks, also former ones: captured by themselves, they need those masks.

Every shape that capture uses is registered, and the registry asks here first. So the stream, the watch, later readings,
remedies and the first snapshot all meet it, and none of them can forget it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from cdc.mask_rules import Masks
from cdc.masks import MaskState
from cdc.schema import TableSchema
from cdc.state import FormState, PartitionsState, SnapshotTableState, find_all
from cdc.topic import TableName
from connectors.postgres.inherited_masks import require_masks_of


class NamedShapes(Protocol):
    """The registry of shapes."""

    def named(self, table: str) -> TableSchema | None:
        """The latest shape of a table."""


class MaskLineage:
    """Of which table a relation is or was a part, as far as the state topic's ``documents`` and looks know. Any
    thread. ``masks``: the settings'. Their key is not needed."""

    def __init__(self, masks: Masks, documents: Mapping[bytes, bytes]) -> None:
        self._masks = masks
        self._parents: Mapping[int, str] = partitions_of(documents)

    def saw(self, parts: Mapping[str, Iterable[int]]) -> None:
        """Know these, too: table -> oids. Those that are known already stay."""
        found = {oid: table for table, oids in parts.items() for oid in oids}
        if found.keys() - self._parents.keys():
            self._parents = {**found, **self._parents}

    def parent(self, oid: int) -> str | None:
        """The table of which a relation is a part, or was one. None as far as is known."""
        return self._parents.get(oid)

    def require(self, table: TableName, oid: int, shapes: NamedShapes) -> None:
        """ConfigError for a part of a table with masks that is to be captured by itself, and lacks one of them.

        A column may have another name since, under which it would go out plain: then nobody can say which it is, and
        the part is refused. A part that is no table of its own is not asked about.
        """
        parent = self._parents.get(oid)
        if parent is None or parent == str(table):
            return
        known = shapes.named(parent)
        masked = {*self._masks.of(parent), *(known.noted_masks if known is not None else ())}
        require_masks_of(table, f"was a partition of {parent}", masked, self._masks)


def partitions_of(documents: Mapping[bytes, bytes]) -> dict[int, str]:
    """oid -> the table of which that relation is a partition, or was one, as far as the state topic knows."""
    found: dict[int, str] = {}
    # A table that is not partitioned is its own leaf.
    for form in find_all(documents, FormState):
        leaves = {leaf[0]: form.table for leaf in form.leaves if leaf[0] != form.oid}
        found |= leaves | _links(form.table, form.links)
    for plan in find_all(documents, SnapshotTableState):
        leaves = {leaf["oid"]: plan.table for leaf in plan.leaves if leaf["oid"] != plan.oid}
        found |= leaves | _links(plan.table, plan.links)
    for seen in find_all(documents, PartitionsState):
        found |= _links(seen.table, seen.links)
    note = MaskState.find(documents)
    for table, oids in (note.partitions if note is not None else {}).items():
        found |= dict.fromkeys(oids, table)
    return found


def _links(table: str, links: Mapping[str, int]) -> dict[int, str]:
    return {int(oid): table for oid in links}
