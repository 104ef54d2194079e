"""The documents of ``<name>.views``: each view's identity, its generation, topic and shape, and its progress.

The identity is the view's text, and what it takes of its tables. Types stand in it as far as results depend on them:
rows keep their values where a column becomes a wider one of the same group. The types of the view's own columns are all
of it, because stores have columns of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from cdc.process.errors import DamagedError
from cdc.record.documents import FIRST, FORMAT, dumped, read_members, record_of
from cdc.record.progress import Progress
from cdc.record.schema import TableSchema
from cdc.views.group_plan import Grouping
from cdc.views.sql_types import Group, SqlType
from cdc.views.view_plan import ViewPlan

_ABOUT = "what the views topic says of a view's columns"
_NOT_AS = "is not as it was published: "
_TOLD = 3
"""Columns of a kind that a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewIdentity:
    """``text``: a digest of the view's text. ``tables``: of each table the columns that the view uses, with
    :func:`kept_as`. ``keys``: each table's key. ``outputs``: the view's columns, with their types. ``post``: a digest
    of its function, empty without one."""

    text: str
    tables: Mapping[str, Mapping[str, str]]
    keys: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, str]
    post: str = ""

    def to_json(self) -> bytes:
        """The record's value. :meth:`from_json` reads it back."""
        members: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return dumped({FORMAT: FIRST} | members)

    @classmethod
    def from_json(cls, value: bytes) -> ViewIdentity:
        """Read :meth:`to_json` back. FormatError and DamagedError as every stored document."""
        return record_of(cls, read_members(value, _ABOUT), _ABOUT)


def kept_as(kind: SqlType) -> str:
    """How values of a type stand in a state and compare: the same for types of which one becomes the other without any
    change of them.

    >>> kept_as(SqlType("int4")) == kept_as(SqlType("int8")), kept_as(SqlType("int4", array=True))
    (True, 'int4[]')
    """
    if kind.kind == "bpchar" and kind.typmod < 0 and not kind.array:
        return f"{kind}, blanks kept"  # nobody knows how many one without a length had
    if kind.array or kind.group is Group.OPAQUE or kind.kind == "bpchar":
        return str(kind)
    return kind.group.value


def identity_of(plan: ViewPlan, post: str = "") -> ViewIdentity:
    """The identity of a plan. ``post``: the digest of the view's function."""
    kept = plan.relations.items()
    return ViewIdentity(
        text=blake2b(plan.sql.encode(), digest_size=16).hexdigest(),
        tables={str(t): {c: kept_as(k) for c, k in zip(one.columns, one.kinds, strict=True)} for t, one in kept},
        keys={str(table): one.key for table, one in kept},
        outputs={name: str(kind) for name, kind in plan.outputs},
        post=post,
    )


def other_identity(published: ViewIdentity, now: ViewIdentity) -> str:
    """The difference of a view from what it was published as, as a predicate. Empty where it is the same one.

    The type of a column tells the two apart where it is another group's, and always where the column is the view's own.
    """
    if published.text != now.text:
        return "is published from another text"
    if published.post != now.post:
        return "is published from another function"
    if published.tables.keys() != now.tables.keys():
        return f"{_NOT_AS}its text names other tables: {', '.join(sorted(now.tables))}"
    for table, columns in sorted(now.tables.items()):
        if said := _other_columns(table, published.tables[table], columns):
            return _NOT_AS + said
        if published.keys.get(table) != now.keys[table]:
            return f"{_NOT_AS}the key of {table} is ({', '.join(now.keys[table])}) now"
    said = _other_outputs(published.outputs, now.outputs)
    return said and _NOT_AS + said


def _other_columns(table: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    added = [name for name in now if name not in before]
    if added:
        word = "column" if len(added) == 1 else "columns"
        was = "was" if len(added) == 1 else "were"
        return f"the {word} {_few(added)} {was} added to {table}, and its text takes every column"
    gone = [name for name in before if name not in now]
    if gone:
        return f"{table} has no column {gone[0]} any more"
    other = [name for name in now if before[name] != now[name]]
    return f"{other[0]} of {table} is {now[other[0]]} now, and was {before[other[0]]}" if other else ""


def _other_outputs(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    if before.keys() != now.keys():
        return f"its columns are other ones: {', '.join(now)}"
    other = [name for name in now if before[name] != now[name]]
    return f"its column {other[0]} is of type {now[other[0]]} now, and was {before[other[0]]}" if other else ""


def other_key(shape: TableSchema, now: TableSchema) -> str:
    """The difference of the keys of a view's documents from those of the shape of its topic, as a predicate.

    Blanks stand in a key on the wire. A state has none, and would leave the documents with the former ones.
    """
    before = {column.name: column.typmod for column in shape.key}
    for column in now.key:
        if column.kind == "bpchar" and before.get(column.name, column.typmod) != column.typmod:
            was, length = (f"char({typmod - 4})" for typmod in (before[column.name], column.typmod))
            return f"{_NOT_AS}its column {column.name}, of its key, is of type {length} now, and was {was}"
    return ""


def _few(names: list[str]) -> str:
    more = len(names) - _TOLD
    return ", ".join(names[:_TOLD]) + (f" and {more} more" if more > 0 else "")


def plan_digest(plan: ViewPlan) -> str:
    """The digest of the text and of all types of what a state keeps and gives. A state that has the same one is the
    plan's. So is one of the same :func:`state_identity`."""
    kept = sorted(
        (str(table), kept.columns, [str(kind) for kind in kept.kinds], kept.indexed, kept.key)
        for table, kept in plan.relations.items()
    )
    said = orjson.dumps([plan.sql, kept, [(name, str(kind)) for name, kind in plan.outputs]])
    return blake2b(said, digest_size=16).hexdigest()


def state_identity(plan: ViewPlan) -> str:
    """The digest of what a state of the view holds: where each value stands, and as what. A state goes on under a plan
    that has the same one, once each document was computed anew."""
    kept = [
        (str(table), one.columns, [kept_as(kind) for kind in one.kinds], one.indexed, one.key)
        for table, one in sorted(plan.relations.items())
    ]
    outputs = [(name, str(kind)) for name, kind in plan.outputs]
    said = orjson.dumps([plan.sql, kept, outputs, _group_kinds(plan.grouping)])
    return blake2b(said, digest_size=16).hexdigest()


def padded_lengths(plan: ViewPlan) -> str:
    """The lengths of the ``char`` columns that a state of the view holds without their blanks, empty for none. Where
    they are others no row of the state is, and documents are."""
    found = [
        f"{table}.{column}:{kind.typmod}"
        for table, one in sorted(plan.relations.items())
        for column, kind in zip(one.columns, one.kinds, strict=True)
        if kind.kind == "bpchar"
    ]
    return blake2b(orjson.dumps(found), digest_size=16).hexdigest() if found else ""


def _group_kinds(grouping: Grouping | None) -> list[Any]:
    """A sum counts the digits of its values: it has their very type."""
    if grouping is None:
        return []
    kinds = [
        (one.kept, str(one.kind) if one.kept in ("sum", "average") else kept_as(one.kind)) for one in grouping.figures
    ]
    return [[str(kind) for kind in grouping.keys], kinds]


_VIEW, _PROGRESS, _COMING, _STREAM = "view", "progress", "coming", "stream"


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


def stream_key(stream: str) -> bytes:
    """The key of what is known of a stream, in the same form as of a view."""
    return dumped({"what": _STREAM, "view": stream})


def batch_key(stream: str, generation: int) -> bytes:
    """The key of a stream's newest batch."""
    return dumped({"what": "batch", "view": stream, "generation": generation})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNote:
    """A batch that stands in the topic. ``cuts``: where it ends, of each source, as Spark's checkpoint has it.

    ``watermark_ms``: up to which its windows were closed. ``at_us``: the least time of its cuts. ``set_apart``:
    reason -> how many events were, so far; the document calls it ``late``. ``state_rows``: how many the state keeps, in
    ``state_partitions``.
    """

    batch: int
    cuts: list[str]
    watermark_ms: int = 0
    at_us: int = 0
    rows: int = 0
    set_apart: dict[str, int] = field(default_factory=dict)
    state_rows: int = 0
    state_partitions: int = 0

    def to_json(self) -> bytes:
        """The record's value. :meth:`from_json` reads it back."""
        members: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        members["late"] = members.pop("set_apart")
        return dumped({FORMAT: FIRST} | members)

    @classmethod
    def from_json(cls, value: bytes) -> BatchNote:
        """Read :meth:`to_json` back. FormatError and DamagedError as every stored document."""
        about = "the note of a stream's batch"
        members = read_members(value, about)
        return record_of(cls, members | {"set_apart": members.get("late", {})}, about)


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
    """The key of what a generation is made of, as :class:`cdc.views.known_views.ViewIdentity`."""
    return dumped({"what": "identity", "view": view, "generation": generation})


def is_claim(key: bytes) -> bool:
    """Whether a record with this key is a view's progress. DamagedError where it is none of the topic's."""
    return _what(key) == _PROGRESS


@dataclass(frozen=True, slots=True)
class Views:
    """All that the topic holds. ``progress``: of each view's present generation, where it has any. ``coming``: the
    generation that is being built beside it, by another text. ``identities``: what each view's present generation is
    made of, where that was noted. ``streams``: the generation of each stream, whose topics are made as views' are.
    ``batches``: its newest batch, where it has any."""

    known: Mapping[str, KnownView]
    progress: Mapping[str, Progress]
    coming: Mapping[str, KnownView] = field(default_factory=dict)
    identities: Mapping[str, ViewIdentity] = field(default_factory=dict)
    streams: Mapping[str, KnownView] = field(default_factory=dict)
    batches: Mapping[str, BatchNote] = field(default_factory=dict)


def read_views(records: Mapping[bytes, bytes]) -> Views:
    """The newest record of each key as views and their progress."""
    found: dict[str, dict[str, KnownView]] = {_VIEW: {}, _COMING: {}, _STREAM: {}}
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
    batches = {
        name: BatchNote.from_json(value)
        for name, stream in found[_STREAM].items()
        if (value := records.get(batch_key(name, stream.generation))) is not None
    }
    return Views(known, progress, found[_COMING], identities, found[_STREAM], batches)


def _what(key: bytes) -> str:
    try:
        found = orjson.loads(key)["what"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise DamagedError("a key in the views topic is none of ours") from None
    return str(found)
