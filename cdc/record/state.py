"""The documents of ``<name>.state``: the pipeline's own memory, so that capture keeps no file.

One compacted record per document. The key is JSON with a ``what`` member. Each document has one writer: the commands,
or the running capture. Two are exceptions: who finds that a table has to be read again writes a request, and a capture
adds the topics that a table, a history or an event needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import orjson

from cdc.process.errors import DamagedError, FormatError
from cdc.record.documents import FIRST, FORMAT, dumped, read_members, reading, record_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Base: a frozen record that is one JSON value under one key.

    A subclass sets ``WHAT``, and overrides :meth:`key` where there are several of its kind. It grows by a member that
    has a default. Where another reader would misread the document, ``FORMAT`` changes.
    """

    WHAT: ClassVar[str] = ""
    FORMAT: ClassVar[int] = FIRST
    """The format that is written, and the only one that is read. See :mod:`cdc.record.documents`."""

    def key(self) -> bytes:
        """The key of its record in the state topic, as JSON."""
        return dumped({"what": self.WHAT})

    def to_json(self) -> bytes:
        """The value of its record, with the number of its format."""
        return dumped({FORMAT: self.FORMAT, **asdict(self)}, option=orjson.OPT_NON_STR_KEYS)

    @classmethod
    def from_json(cls, value: bytes) -> Self:
        """Read :meth:`to_json` back. FormatError for another format, DamagedError for what none has."""
        about = f"the {cls.WHAT} document in the state topic"
        found = record_of(cls, read_members(value, about, cls.FORMAT), about)
        with reading(about):
            found.require_sound()
        return found

    def require_sound(self) -> None:
        """ValueError where the members are each of their type, and together say what nobody writes."""

    @classmethod
    def find(cls, documents: Mapping[bytes, bytes]) -> Self | None:
        """The one document of this kind among the state topic's records. None while it has not been written."""
        value = documents.get(dumped({"what": cls.WHAT}))
        return cls.from_json(value) if value is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsState(Document):
    """The topics that ``init`` made: a re-created topic has another id, a raised one another count.
    ``topics``: topic -> {"id": text, "partitions": n}. ``tables``: table -> topic. ``events``: those of outbox events.
    ``histories``: a table's topic -> its history's, with a gap for each new epoch up to ``histories_epoch``.
    """

    WHAT: ClassVar[str] = "topics"
    cluster_id: str
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    encoding: str = "readable"
    events: list[str] = field(default_factory=list)
    histories: dict[str, str] = field(default_factory=dict)
    histories_epoch: int = 1

    @property
    def never_compacted(self) -> frozenset[str]:
        """Those that keep every record for a time: events and histories."""
        return frozenset([*self.events, *self.histories.values()])

    @property
    def written(self) -> frozenset[str]:
        """Those that the stream's records go to."""
        return self.never_compacted.union(self.tables.values())

    def require_sound(self) -> None:
        """ValueError unless each topic has an id and partitions."""
        for one in self.topics.values():
            if not isinstance(one.get("id"), str) or type(n := one.get("partitions")) is not int or n < 1:
                raise ValueError("a topic without an id or partitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotIntent(Document):
    """The slot that is being made. Written before it is made, and again with its ``consistent_point`` before it gets
    its name: one of this name that stands there, and no other, is ours without a :class:`SlotState`. 0: not known yet,
    so none is.
    """

    WHAT: ClassVar[str] = "slot_intent"
    epoch: int
    system_identifier: str
    database: str
    slot: str
    consistent_point: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState(Document):
    """The identity of the slot and its server. Another server, timeline or slot of that name is noticed.

    ``consistent_point`` as a number. ``database`` by name and oid. ``epoch`` from 1. ``timeline``: the running capture
    writes it anew when it goes on with a promoted standby. ``history``: the timelines it came from, oldest first, each
    with the LSN at which it was left. None until a capture has noted it: the number alone is no identity.
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
    history: list[list[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotState(Document):
    """The first snapshot as a whole. ``state``: ``running`` or ``complete``. Capture streams only when complete.

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

    The plan is whole when ``chunks`` chunks of this ``generation`` are there. A table that was rewritten gets the
    next generation. ``leaves``: ``{"oid", "schema", "name", "filenode"}`` each, at planning. ``version``: of the
    shape its rows are written in. ``gone``: the table was dropped before it was read. ``publication``, ``entries``,
    ``types``, ``links``: as in :class:`FormState`, from before the rows were read.
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
    publication: str = ""
    entries: str = ""
    types: dict[str, int] = field(default_factory=dict)
    links: dict[str, int] = field(default_factory=dict)

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "table": self.table})


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
        return dumped({"what": self.WHAT, "table": self.table, "leaf": self.leaf, "number": self.number})


REQUEST_STATES = ("asked", "paused", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState(Document):
    """A table to be read again in windows of the stream, once the stream has passed ``after_lsn``.

    Written by the command that asks. Never by the capture that carries it out, nor by a command that pauses it (see
    :class:`CommandState`). ``id``:
    asking again under one id replaces the request, if its ``serial`` (nanoseconds since 1970) is another. ``reason``:
    a sentence for people. ``state``: how it begins, ``asked``, ``paused`` or ``cancelled``. ``where``: a condition,
    see :mod:`cdc.record.row_condition`. ``keys``: each the key columns' text, in key order. ``leaves``: partitions, as
    ``schema.name``. Without any of the three the whole table is read, and a sweep mark ends it. ``first``: these are
    the table's first rows. ``by_hand``: an operator asks.
    """

    WHAT: ClassVar[str] = "request"
    id: str
    table: str
    after_lsn: int
    reason: str
    state: str = "asked"
    serial: int = 0
    where: str | None = None
    keys: list[list[str]] | None = None
    leaves: list[str] | None = None
    first: bool = False
    by_hand: bool = False

    def __post_init__(self) -> None:
        """ValueError for members of other types: others than the pipeline may write to its state topic."""
        texts: list[Any] = [self.id, self.table, self.reason, self.state, self.where or ""]
        lists: list[Any] = [*(self.keys or []), self.leaves or []]
        numbers: list[Any] = [self.after_lsn, self.serial]
        if not (_all_are(str, texts) and _all_are(int, numbers) and all(_all_are(str, one) for one in lists)):
            raise ValueError("a request has members of other types than it should")
        if self.state not in REQUEST_STATES:
            raise ValueError(f"a request has the state {self.state[:30]}")

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "id": self.id})

    @property
    def whole(self) -> bool:
        """Whether every row is read, so that what was not there can be swept."""
        return self.where is None and self.keys is None and self.leaves is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandState(Document):
    """A command to pause, resume or cancel a request: ``state`` as :class:`RequestState` has it.

    A record of its own, because whoever commands has read the request a moment before, and must not put it in the place
    of a newer one of the same id. It counts for the request of this ``serial`` alone.
    """

    WHAT: ClassVar[str] = "wish"
    id: str
    serial: int
    state: str

    def __post_init__(self) -> None:
        if self.state not in REQUEST_STATES:
            raise ValueError(f"a command has the state {str(self.state)[:30]}")

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "id": self.id})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingState(Document):
    """How far the running capture is with a request. Written by it alone, about once a second.

    ``state``: ``waiting`` (``detail`` says for what), ``running``, ``paused``, ``done``, ``failed`` (``detail`` says
    why) or ``cancelled``. ``floor``: position of the first window as text, which everything that is alive ends up at
    or above. Empty before it. ``begun``: the same of all its windows, also of those before it began anew.
    ``leaves``: ``{"oid", "schema", "name", "filenode", "blocks", "next"}`` each, as planned, ``next`` the block below
    which the brokers have stored all. ``differing``: rows that the log had otherwise, or not. None where that was not
    found out. ``share``: of the blocks, 0 to 1.
    """

    WHAT: ClassVar[str] = "reread"
    id: str
    table: str
    serial: int
    epoch: int
    state: str = "waiting"
    detail: str = ""
    floor: str = ""
    begun: str = ""
    oid: int = 0
    version: int = 0
    leaves: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    left_out: int = 0
    differing: int | None = None
    share: float = 0.0
    first: bool = False
    started_ns: int = 0
    finished_ns: int = 0

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "id": self.id})

    @property
    def over(self) -> bool:
        """Whether nothing more will be read for the request."""
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormState(Document):
    """A table as the catalog watch last saw it. Changes that happen while no capture runs are noticed by it.

    ``columns``: ``[attnum, name, type oid, typmod, filled]`` each, ``filled``: rows from before the column have a value
    for it. ``leaves``: ``[oid, schema, name, filenode]`` each. ``publication``: what it sends of the table, as text.
    Empty when it does not send it. ``born``: by attnum, the transaction that last changed the column. Empty where that
    says nothing of the rows. ``entries``: the catalog entries that publish it, with their transactions. Empty when not
    known. ``types``: by member (a label, an attribute) of each type that its columns use, the transaction that last
    changed it. ``links``: by oid of each partition on every level, the transaction that attached it. ``version``: the
    newest version of its shape that the log knew then, 0 where nobody noted it.
    """

    WHAT: ClassVar[str] = "form"
    table: str
    oid: int
    columns: list[list[Any]]
    leaves: list[list[Any]]
    publication: str
    born: dict[str, int] = field(default_factory=dict)
    entries: str = ""
    types: dict[str, int] = field(default_factory=dict)
    links: dict[str, int] = field(default_factory=dict)
    version: int = 0

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "table": self.table})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsState(Document):
    """Partitions that have brought changes of a table, and that no look at the catalog has compared yet.

    ``links``: by oid of each partition, the transaction that attached it.
    """

    WHAT: ClassVar[str] = "partitions"
    table: str
    links: dict[str, int]

    def key(self) -> bytes:
        return dumped({"what": self.WHAT, "table": self.table})


def _all_are(kind: type, found: object) -> bool:
    return isinstance(found, list) and all(isinstance(one, kind) for one in found)


D = TypeVar("D", bound=Document)


def what_of(key: bytes) -> str:
    """The kind of document that a key of the state topic names. Empty for a key that is none of the pipeline's."""
    try:
        found = orjson.loads(key)
    except orjson.JSONDecodeError:
        return ""
    what = found.get("what") if isinstance(found, dict) else None
    return what if isinstance(what, str) else ""


def requests_of(documents: Mapping[bytes, bytes]) -> list[RequestState]:
    """Every request among the state topic's records in the state that a command has given it.

    Those that cannot be read are left out, for nobody carries them out.
    """
    commands = {command.id: command for command in _readable(documents, CommandState)}
    return [with_command(request, commands.get(request.id)) for request in _readable(documents, RequestState)]


def with_command(request: RequestState, command: CommandState | None) -> RequestState:
    """The request, in the state that a command of the same serial gives it."""
    if command is None or command.serial != request.serial:
        return request
    return replace(request, state=command.state)


def _readable(documents: Mapping[bytes, bytes], kind: type[D]) -> list[D]:
    found = []
    for key, value in documents.items():
        if what_of(key) == kind.WHAT:
            with suppress(DamagedError, FormatError):
                found.append(kind.from_json(value))
    return found


def find_all(documents: Mapping[bytes, bytes], kind: type[D]) -> list[D]:
    """Every document of a kind among the state topic's records."""
    return [kind.from_json(value) for key, value in documents.items() if what_of(key) == kind.WHAT]
