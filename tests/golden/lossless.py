"""JSON read without loss: member order and number text stay as they were written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class LosslessNumber:
    """A number by its text: ``1.0E10``, ``-0.0`` and 19 digits do not go through a float."""

    text: str


@dataclass(frozen=True, slots=True)
class Object:
    """Members in the order they stand."""

    members: tuple[tuple[str, Json], ...]

    def get(self, name: str) -> Json:
        """The value of the first member of this name. None where there is none, and where it is null."""
        return next((value for member, value in self.members if member == name), None)

    def names(self) -> tuple[str, ...]:
        """The names of the members, in their order."""
        return tuple(name for name, _ in self.members)

    def without(self, *names: str) -> Object:
        """A copy that lacks the members of these names."""
        return Object(tuple(m for m in self.members if m[0] not in names))

    def replaced(self, changes: dict[str, Json]) -> Object:
        """With other values where a member of that name stands and is not null."""
        return Object(tuple((n, changes[n] if n in changes and v is not None else v) for n, v in self.members))


@dataclass(frozen=True, slots=True)
class Absent:
    """No member of that name stands there. Unlike one that is null."""


Json: TypeAlias = "Object | tuple[Json, ...] | LosslessNumber | Absent | str | bool | None"
ABSENT = Absent()


def parse(text: str | bytes) -> Json:
    """Read one JSON value."""
    decoded = json.loads(
        text,
        object_pairs_hook=lambda pairs: Object(tuple(pairs)),
        parse_int=LosslessNumber,
        parse_float=LosslessNumber,
        parse_constant=lambda word: (_ for _ in ()).throw(ValueError(f"{word} is not JSON")),
    )
    return _frozen(decoded)


def _frozen(value: object) -> Json:
    if isinstance(value, list):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, Object):
        return Object(tuple((n, _frozen(v)) for n, v in value.members))
    assert value is None or isinstance(value, str | bool | LosslessNumber)
    return value


def show(value: Json) -> str:
    """The value as text, for a report."""
    if isinstance(value, Object):
        return "{" + ",".join(f"{json.dumps(n, ensure_ascii=False)}:{show(v)}" for n, v in value.members) + "}"
    if isinstance(value, tuple):
        return "[" + ",".join(map(show, value)) + "]"
    if isinstance(value, LosslessNumber):
        return value.text
    if isinstance(value, Absent):
        return "(absent)"
    return json.dumps(value, ensure_ascii=False)
