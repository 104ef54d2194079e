"""The ports of ``cdc forget``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from cdc.dead import DeadLetter, Why
from cdc.forget.document_history import DocumentForm
from cdc.forget.holding import Trace
from cdc.forget.key_history import SeenRecord
from cdc.forget.letter_history import SeenLetter
from cdc.forget.rules import TopicOptions
from cdc.forget.typed_key import TypedKey
from cdc.position import Position
from cdc.schema import TableSchema


class ForgetLog(Protocol):
    """The log, read by one who looks for what is left. LogError when no broker answers, TopicError for a topic that
    does not exist."""

    def records(self, topic: str) -> Iterator[SeenRecord]:
        """Every record of every partition, each partition in its order, those of aborted transactions too, up to the
        ends at the call."""

    def options(self, topic: str) -> TopicOptions:
        """The topic's settings, as they are now."""

    def letters(self) -> Sequence[SeenLetter]:
        """The dead letters' topic, whole. Empty where there is none."""

    def trim_letters(self, below: int) -> None:
        """Delete the records of the dead letters' topic below an offset."""


class KeptVersions(Protocol):
    """The rows of one store, older versions of them included. SinkError when it does not answer."""

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        """The traces under some keys of a table, as the store has them: rows, memories of deletes, older files."""

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        """Versions of any key up to a position, which no reader sees any more. None: of any position."""

    def clean(self, schema: TableSchema) -> None:
        """Take away what the store's own settings let go now, and the sink would take away in time."""

    def close(self) -> None:
        """Close the connections. Never raises."""


class StoreTraces(KeptVersions, Protocol):
    """The same of a store with all its generations, and how far it is."""

    def spellings(self, schema: TableSchema, same: Callable[[str], bool]) -> Iterable[str]:
        """The keys of a table for which this holds, as the store has them. It reads the whole table."""

    def shown(
        self, schema: TableSchema, position: Position | None, ends: Mapping[int, int], form: DocumentForm
    ) -> Iterable[Trace]:
        """Documents of any key up to a position that readers still see, unless the store has shown all of the topic up
        to these offsets, by partition. Of those that stay as they are, and of keys with values, all the same."""


class ForgetView(Protocol):
    """A view that reads the table. LogError when no broker answers."""

    @property
    def name(self) -> str:
        """As the settings name it."""

    @property
    def published(self) -> TableSchema | None:
        """The shape of its documents. None before it was ever published."""

    @property
    def late(self) -> str | None:
        """The topic of rows of this table that came too late for its closed windows. None where it has none."""

    @property
    def form(self) -> DocumentForm:
        """Where its documents have values of rows."""

    def deleted(self, table: TableSchema, key: TypedKey) -> Position | None:
        """The place of the key's delete in the log, as its runner's state remembers it. None where it does not."""

    def reached(self) -> tuple[int, int] | None:
        """Epoch and LSN below which its documents hold every change. None before the first."""

    def in_state(self, table: TableSchema, key: TypedKey) -> Iterable[Trace]:
        """The traces of the key in the files of its runner's state. StateAway where none of them is on this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPorts:
    """Everything that is asked and done.

    ``in_source``: whether the source has the row. SourceError when it does not answer. ``requests``: the topic of the
    pipeline's state. ``order``: asks the stores about waiting letters, and returns when they have answered or the time
    is over. ``stores``: by place, what opens it. ``fed``: the names of sinks that a query feeds. ``views``: those that
    read a table. ``may_nest``: whether a topic is one of documents that may nest its rows, also of a view that is gone.
    """

    in_source: Callable[[TypedKey], bool]
    log: ForgetLog
    requests: str
    order: Callable[[Sequence[tuple[DeadLetter, Why]], float], None]
    stores: Mapping[str, Callable[[], AbstractContextManager[StoreTraces]]]
    fed: Sequence[str] = ()
    views: Sequence[ForgetView] = field(default=())
    may_nest: Callable[[str], bool] = lambda _topic: False
