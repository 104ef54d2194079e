"""The row of the wire manual that encodes a type: pure, over rows of pg_type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cdc.wire.types import CATALOG_KINDS, ENUM, EXTENSION_KINDS, OTHER, SPELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """A row of pg_type. ``element``: the array's element, 0 for every type that is not an array."""

    oid: int
    name: str
    schema: str
    kind: str
    base: int
    typmod: int
    element: int
    extension: str | None


class Resolved(NamedTuple):
    """The facts of a type that :class:`cdc.schema.Column` keeps."""

    kind: str
    array: bool
    typmod: int


def resolve(oid: int, typmod: int, types: Mapping[int, Type], *, keyed: bool = False) -> Resolved:
    """Kind, arrayness and typmod of a type, through domains. A type that is gone is ``other``.

    ``keyed``: of a column of the key. Different keys have different texts, so what has no such form is ``other`` (D26).
    """
    found = _resolved(oid, typmod, types)
    return Resolved(OTHER, False, -1) if keyed and (found.array or found.kind in SPELLED) else found


def _resolved(oid: int, typmod: int, types: Mapping[int, Type]) -> Resolved:
    base, typmod = _through_domains(oid, typmod, types)
    if base is None:
        return Resolved(OTHER, False, typmod)
    if not base.element:
        return Resolved(_kind(base), False, typmod)
    element, element_typmod = _through_domains(base.element, typmod, types)
    if element is None or element.element:
        # An element that is an array by a domain stands quoted in its parent's text: carried as that text.
        return Resolved(OTHER, True, -1)
    return Resolved(_kind(element), True, element_typmod)


def missing(oids: set[int], types: Mapping[int, Type]) -> set[int]:
    """Types that must be read too before all of ``oids`` resolve. Empty when all is there."""
    wanted = oids | {t.base for t in types.values() if t.base} | {t.element for t in types.values() if t.element}
    return wanted - types.keys()


def _through_domains(oid: int, typmod: int, types: Mapping[int, Type]) -> tuple[Type | None, int]:
    found = types.get(oid)
    while found is not None and found.kind == "d":
        if typmod < 0:
            typmod = found.typmod
        found = types.get(found.base)
    return found, typmod


def _kind(base: Type) -> str:
    if base.kind == "e":
        return ENUM
    if base.schema == "pg_catalog":
        return base.name if base.name in CATALOG_KINDS else OTHER
    if base.extension is not None and base.name in EXTENSION_KINDS:
        return base.name
    return OTHER
