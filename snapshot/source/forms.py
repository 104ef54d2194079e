"""Tables as the catalog has them, marks by which one is still the one that was planned. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafForm:
    """A table that holds rows, as the catalog has it now.

    ``filenode``: of its heap. ``size_bytes``: heap and TOAST. ``row_estimate``: the planner's. ``by_range``: whether
    our role may ask for ``ctid``, which rights on columns alone do not allow.
    """

    oid: int
    table: TableName
    filenode: int
    heap_blocks: int
    size_bytes: int
    row_estimate: int = 0
    by_range: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogMarks:
    """Marks that show a change of the table without an event, also one that was undone.

    The members are those of :class:`cdc.record.state.FormState`.
    """

    publication: str
    entries: str
    types: dict[str, int]
    links: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """A captured table as the catalog has it now: where its rows lie, and the registered shape they are written in."""

    table: TableName
    topic: str
    oid: int
    version: int
    leaves: tuple[LeafForm, ...]
    marks: CatalogMarks | None = field(default=None, compare=False)

    @property
    def size_bytes(self) -> int:
        """The size of all files that store its rows."""
        return sum(leaf.size_bytes for leaf in self.leaves)

    @property
    def row_estimate(self) -> int:
        """About how many rows it has, by the catalog."""
        return sum(leaf.row_estimate for leaf in self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedTable:
    """A table now: its form, its registered shape, and the publication's row filter as SQL, if it has one."""

    form: TableForm
    schema: TableSchema
    condition: str | None


class Inspection(NamedTuple):
    """``tables``: by name, in the order of reading. ``late``: captured tables that were not inspected."""

    tables: dict[str, InspectedTable]
    late: list[str]


def form_change(planned: TableForm, now: TableForm) -> str | None:
    """The change of a table between two looks that came without an event. None when nothing did.

    A sentence part that follows the table's name.
    """
    if planned.oid != now.oid:
        return "was dropped and made anew"
    if {leaf.oid for leaf in planned.leaves} != {leaf.oid for leaf in now.leaves}:
        return "has other partitions now"
    files = {leaf.oid: leaf.filenode for leaf in planned.leaves}
    if any(files[leaf.oid] != leaf.filenode for leaf in now.leaves):
        return "was rewritten or truncated"
    # Chunks name their leaf: one of the old name would not be found, or be another table's.
    if {leaf.oid: leaf.table for leaf in planned.leaves} != {leaf.oid: leaf.table for leaf in now.leaves}:
        return "has renamed partitions now"
    if planned.version != now.version:
        return "has other columns now"
    return None


def largest_first(forms: Sequence[TableForm]) -> list[TableForm]:
    """The order of reading: big tables first, so that small ones fill the gaps at the end. Equal ones by name."""
    return sorted(forms, key=lambda look: (-look.size_bytes, look.table))
