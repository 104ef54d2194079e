"""The documents of ``<name>.views``: each view's generation, topic and shape, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.process.errors import DamagedError
from cdc.record.documents import FIRST, FORMAT, dumped, read_members, record_of
from cdc.record.progress import Progress
from cdc.record.schema import TableSchema
from cdc.views.view_identity import ViewIdentity

_VIEW, _PROGRESS, _COMING = "view", "progress", "coming"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownView:
    """The generation of a view that is published now. ``digest``: of its text and of what it keeps and gives.

    ``topic_id``: Kafka's, as of its making. ``shape``: as :meth:`cdc.record.schema.TableSchema.to_json` writes it.
    """

    view: str
    generation: int
    topic: str
    topic_id: str
    partitions: int
    digest: str
    shape: str

    @property
    def key(self) -> bytes:
        """The record's key."""
        return known_key(self.view)

    def to_json(self) -> bytes:
        """The record's value. :meth:`from_json` reads it back."""
        members = {name: getattr(self, name) for name in self.__slots__}
        return dumped({FORMAT: FIRST} | members)

    @classmethod
    def from_json(cls, value: bytes) -> KnownView:
        """Read :meth:`to_json` back. FormatError and DamagedError as every stored document."""
        about = "a view in the views topic"
        return record_of(cls, read_members(value, about), about)

    @property
    def made(self) -> dict[str, Any]:
        """Its topic as :class:`cdc.record.state.TopicsState` notes one."""
        return {"id": self.topic_id, "partitions": self.partitions}

    @property
    def schema(self) -> TableSchema:
        """The shape of its rows."""
        return TableSchema.from_json(self.shape.encode())


def known_key(view: str) -> bytes:
    """The key of what is known of a view."""
    return dumped({"what": _VIEW, "view": view})


def coming_key(view: str) -> bytes:
    """The key of the generation that ``cdc view rebuild`` is to put in the place of the published one."""
    return dumped({"what": _COMING, "view": view})


def claim_key(view: str, generation: int) -> bytes:
    """The key of a view's progress."""
    return dumped({"what": _PROGRESS, "view": view, "generation": generation})


def identity_key(view: str, generation: int) -> bytes:
    """The key of what a generation is made of, as :class:`cdc.views.view_identity.ViewIdentity`."""
    return dumped({"what": "identity", "view": view, "generation": generation})


def is_claim(key: bytes) -> bool:
    """Whether a record with this key is a view's progress. DamagedError where it is none of the topic's."""
    return _what(key) == _PROGRESS


@dataclass(frozen=True, slots=True)
class Views:
    """All that the topic holds. ``progress``: of each view's present generation, where it has any. ``coming``: the
    generation that is being built beside it, by another text. ``identities``: what each view's present generation is
    made of, where that was noted."""

    known: Mapping[str, KnownView]
    progress: Mapping[str, Progress]
    coming: Mapping[str, KnownView] = field(default_factory=dict)
    identities: Mapping[str, ViewIdentity] = field(default_factory=dict)


def read_views(records: Mapping[bytes, bytes]) -> Views:
    """The newest record of each key as views and their progress."""
    found: dict[str, dict[str, KnownView]] = {_VIEW: {}, _COMING: {}}
    for key, document in records.items():
        of_kind = found.get(_what(key))
        if of_kind is not None:
            view = KnownView.from_json(document)
            of_kind[view.view] = view
    known = found[_VIEW]
    progress = {
        name: Progress.from_json(value)
        for name, view in known.items()
        if (value := records.get(claim_key(name, view.generation))) is not None
    }
    identities = {
        name: ViewIdentity.from_json(value)
        for name, view in known.items()
        if (value := records.get(identity_key(name, view.generation))) is not None
    }
    return Views(known, progress, found[_COMING], identities)


def _what(key: bytes) -> str:
    try:
        found = orjson.loads(key)["what"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise DamagedError("a key in the views topic is none of ours") from None
    return str(found)
