"""A runner's answer to who asked for documents once more, as the views topic holds it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.json_bytes import dumped
from cdc.stored import FIRST, FORMAT, read_members, record_of

_ABOUT = "a runner's answer in the views topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerAnswer:
    """All keys of a wish are published, but those that cannot be. ``id``: of the wish.

    ``parked``: key of a record as JSON -> why there is no document of it.
    """

    id: str
    parked: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """The value under :func:`answer_key`. :func:`read_answer` reads it back."""
        return dumped({FORMAT: FIRST, "id": self.id, "parked": dict(self.parked)})


def answer_key(view: str, generation: int) -> bytes:
    """The key of what a view's runner answers, in the views topic."""
    return dumped({"what": "answer", "view": view, "generation": generation})


def read_answer(value: bytes | None) -> RunnerAnswer | None:
    """The newest answer. None before the first. FormatError and DamagedError as every stored document."""
    return None if value is None else record_of(RunnerAnswer, read_members(value, _ABOUT), _ABOUT)
