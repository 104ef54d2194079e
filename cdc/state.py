"""What ``<name>.state`` holds: the pipeline's own memory, so that capture keeps no file.

One compacted record per document; the key is JSON with a ``what`` member. Each document has one writer:
``cdc init`` the topics and the epoch, ``cdc snapshot`` the slot, the manifest and its chunks. Requests are the
exception: whoever finds that a table has to be read again writes one, the running capture carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Base: a frozen record that is one JSON value under one key."""

    WHAT: ClassVar[str] = ""

    def key(self) -> bytes:
        return orjson.dumps({"what": self.WHAT})

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_NON_STR_KEYS)

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        return cls(**orjson.loads(value))

    @classmethod
    def find(cls, held: Mapping[bytes, bytes]) -> Self | None:
        """The one document of this kind among the state topic's records; None while it has not been written."""
        value = held.get(orjson.dumps({"what": cls.WHAT}))
        return cls.from_json(value) if value is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsState(Document):
    """What ``init`` made: a re-created topic has another id, a raised one another count (H61, H63, H89).

    ``topics``: topic -> {"id": text, "partitions": n}; ``tables``: table -> topic.
    """

    WHAT: ClassVar[str] = "topics"
    cluster_id: str
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    encoding: str = "readable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotIntent(Document):
    """Written before a slot is made: one of this name that appears without a :class:`SlotState` is ours, half made."""

    WHAT: ClassVar[str] = "slot_intent"
    epoch: int
    system_identifier: str
    database: str
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState(Document):
    """The slot's identity (H5, H6): another server, timeline or slot under the same name is noticed.

    ``consistent_point`` and ``created_at_lsn`` as numbers; ``database`` by name and oid. ``epoch`` from 1.
    """

    WHAT: ClassVar[str] = "slot"
    epoch: int
    system_identifier: str
    timeline: int
    database: str
    database_oid: int
    slot: str
    publication: str
    consistent_point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotState(Document):
    """The manifest's head. ``state``: ``running`` or ``complete``; capture streams only when complete.

    ``last_cut_lsn``: the stores are ``bootstrapping`` until the stream has passed it. ``tables`` in plan order.
    """

    WHAT: ClassVar[str] = "snapshot"
    epoch: int
    state: str
    consistent_point: int
    last_cut_lsn: int
    tables: list[str] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTableState(Document):
    """How a table of the first snapshot was cut into chunks.

    The plan is whole when ``chunks`` chunks of this ``generation`` are there; a table that was rewritten gets the
    next generation. ``leaves``: ``{"oid", "schema", "name", "filenode"}`` each, at planning. ``version``: of the
    shape its rows are written in. ``gone``: the table was dropped before it was read.
    """

    WHAT: ClassVar[str] = "snapshot_table"
    table: str
    schema: str
    name: str
    topic: str
    oid: int
    version: int
    generation: int
    chunks: int
    leaves: list[dict[str, Any]] = field(default_factory=list)
    gone: bool = False

    def key(self) -> bytes:
        return orjson.dumps({"what": self.WHAT, "table": self.table})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkState(Document):
    """One chunk of the first snapshot: ctid blocks ``low`` up to ``high`` (None: open-ended) of one leaf's file.

    ``number`` counts through its table. ``state``: ``planned`` or ``done``. ``size_bytes``: of keys and values.
    ``started_ns``, ``finished_ns``: since 1970.
    """

    WHAT: ClassVar[str] = "chunk"
    table: str
    leaf: str
    number: int
    filenode: int
    low: int
    high: int | None
    generation: int = 1
    state: str = "planned"
    rows: int = 0
    size_bytes: int = 0
    started_ns: int = 0
    finished_ns: int = 0

    def key(self) -> bytes:
        return orjson.dumps({"what": self.WHAT, "table": self.table, "leaf": self.leaf, "number": self.number})


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState(Document):
    """A table to be read again in windows of the stream, once the stream has passed ``after_lsn``.

    ``id``: asking again under one id replaces the request. ``reason``: a sentence for people. ``state``: ``asked``
    until the running capture takes it up.
    """

    WHAT: ClassVar[str] = "request"
    id: str
    table: str
    after_lsn: int
    reason: str
    state: str = "asked"

    def key(self) -> bytes:
        return orjson.dumps({"what": self.WHAT, "id": self.id})
