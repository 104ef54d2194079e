"""MongoDB's ``updateDescription`` applied to a document: pure.

The rules are the server's own, by which its secondaries apply a change to a document that may hold later ones
already (``document_diff_applier.cpp``), so that a run of patches applied again from its beginning ends as before:

1. ``removedFields`` go. A field that is not there is no fault.
2. ``truncatedArrays`` are cut to their size. A shorter one stays as it is.
3. ``updatedFields`` are set. An element beyond an array's end is reached by nulls.

A path is names and array indexes joined by dots, and a name may hold dots itself. The server distinguishes these by
``disambiguatedPaths``, which Debezium leaves out, so the document does, by what stands at a path. Where two
things do, the patch is refused. Where nothing does and the path has several parts, the update has no target:
either a later patch of the run removes what it belongs to, or it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_MOST_PADDING = 1_500_000
"""Nulls that MongoDB puts before an element that is set beyond an array's end, at most."""

Place = tuple[Any, Any]
"""An object and a name in it, or an array and an index."""


class AmbiguousPath(ValueError):
    """A path that leads to two values of the document."""


class Patch(NamedTuple):
    """An ``updateDescription``, read. ``truncated``: path and new size."""

    removed: tuple[str, ...]
    truncated: tuple[tuple[str, int], ...]
    updated: Mapping[str, Any]

    @classmethod
    def read(cls, description: Mapping[str, Any], loads: Callable[[str], Any]) -> Patch:
        """From the record's member. ``loads`` reads the JSON string of the updated fields. ValueError or TypeError
        where it is no patch.

        >>> import orjson
        >>> Patch.read({"removedFields": None, "updatedFields": '{"a": 1}', "truncatedArrays": None}, orjson.loads)
        Patch(removed=(), truncated=(), updated={'a': 1})
        """
        try:
            cuts = tuple((str(cut["field"]), int(cut["size"])) for cut in description.get("truncatedArrays") or ())
            removed = tuple(str(path) for path in description.get("removedFields") or ())
            updated = loads(description.get("updatedFields") or "{}")
        except (KeyError, AttributeError) as fault:
            raise ValueError("its updateDescription is no patch") from fault
        if not isinstance(updated, dict) or any(size < 0 for _, size in cuts):
            raise ValueError("its updateDescription is no patch")
        return cls(removed, cuts, updated)


class Patched:
    """A document, and the patches that were applied to it, in their order. The document is changed in place.

    >>> one = Patched({"a": {"b": [1, 2, 3]}, "c": 1})
    >>> one.apply(Patch(removed=("c",), truncated=(("a.b", 2),), updated={"a.b.1": 9, "d": {"e": 1}}))
    >>> one.document, one.unplaced
    ({'a': {'b': [1, 9]}, 'd': {'e': 1}}, [])
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.unplaced: list[str] = []
        """Paths of updates that had no target, and that no later patch made needless."""

    def apply(self, patch: Patch) -> None:
        """One more patch. AmbiguousPath for a path that leads to two values. The document is of no use then."""
        for path in patch.removed:
            self._remove(path)
        for path, size in patch.truncated:
            self._truncate(path, size)
        unplaced = [path for path, value in patch.updated.items() if not self._set(path, value)]
        settled = (*patch.removed, *(path for path in patch.updated if path not in unplaced))
        left = [path for path in self.unplaced if not any(_within(path, other) for other in settled)]
        self.unplaced = left + unplaced

    def _remove(self, path: str) -> None:
        place = _only((one for one in _places(self.document, path.split(".")) if _stands(one)), path)
        if place is None:
            return
        holder, name = place
        if isinstance(holder, dict):
            del holder[name]
        else:
            holder[name] = None

    def _truncate(self, path: str, size: int) -> None:
        found = (one for one in _places(self.document, path.split(".")) if _stands(one))
        place = _only((one for one in found if isinstance(_at(one), list)), path)
        if place is not None:
            del _at(place)[size:]

    def _set(self, path: str, value: Any) -> bool:
        place = _only(_places(self.document, path.split(".")), path)
        if place is None:
            return False
        holder, name = place
        if isinstance(holder, list):
            holder.extend([None] * (name + 1 - len(holder)))
        holder[name] = value
        return True


def _places(holder: Any, parts: list[str]) -> Iterator[Place]:
    """Every target of a path: those that are there, and a new field of an object, if its name is one part."""
    if isinstance(holder, list):
        head, *rest = parts
        if not (head.isascii() and head.isdigit()):
            return
        at = int(head)
        if not rest and at <= len(holder) + _MOST_PADDING:
            yield holder, at
        elif rest and at < len(holder):
            yield from _places(holder[at], rest)
    elif isinstance(holder, dict):
        for count in range(1, len(parts)):
            name = ".".join(parts[:count])
            if name in holder:
                yield from _places(holder[name], parts[count:])
        name = ".".join(parts)
        if name in holder or len(parts) == 1:
            yield holder, name


def _only(places: Iterator[Place], path: str) -> Place | None:
    found = list(places)
    if len(found) > 1:
        raise AmbiguousPath(f"the patch's path {path} means two fields of the document, because a name holds a dot")
    return found[0] if found else None


def _stands(place: Place) -> bool:
    holder, name = place
    return name in holder if isinstance(holder, dict) else bool(name < len(holder))


def _at(place: Place) -> Any:
    holder, name = place
    return holder[name]


def _within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")
