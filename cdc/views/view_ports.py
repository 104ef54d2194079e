"""The ports of a view's runner to the log, and what somebody asks of it through the log: ``cdc verify --repair``.

To ask for documents once more is a record of the state topic, so it outlives both sides. The runner takes it up with
its next cut, so that what it publishes is newer than anything a store can hold from before, and answers in the views
topic when none of the keys waits any more. Killed between the two it answers once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cdc.record.documents import FIRST, FORMAT, dumped, read_members, record_of
from cdc.record.position import Position
from cdc.record.progress import Offsets, Progress
from cdc.record.schema import TableSchema
from cdc.record.state import Document
from cdc.views.log_cut import Fence
from cdc.views.lookups import Row
from cdc.views.view_plan import ViewPlan
from cdc.views.view_records import ViewRecord, key_row
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.records import RecordColumns, Span


class ViewInput(Protocol):
    """The tables' topics, and how far they hold the source."""

    def progress(self) -> Progress | None:
        """The newest progress record. None before the first."""
        ...

    @property
    def progress_ms(self) -> int:
        """When the newest progress record was written, since 1970. 0 before the first."""
        ...

    def beyond(self, offsets: Offsets) -> bool:
        """Whether one of these topics holds a record behind these offsets, where 0 stands for one that is not named."""
        ...

    def read(self, spans: Iterable[Span]) -> Iterator[RecordColumns]:
        """The records of these spans. See :class:`cdc.wire.records.RecordReader`."""
        ...

    def shape(self, topic: str, version: int) -> TableSchema:
        """A version of a table's shape. TopicError where there is none."""
        ...

    def letters(self, start: int) -> tuple[Sequence[DeadLetter], int]:
        """The dead letters from an offset on, and the offset behind them.

        Asked behind :meth:`progress` they name every row below it that capture put aside.
        """
        ...

    def documents(self) -> Mapping[bytes, bytes]:
        """The state topic's records that say which tables are set aside or read again, and which documents are asked
        for once more, as of the call.

        Asked behind :meth:`progress` they name every table that lacks changes below it.
        """
        ...

    @property
    def compaction_lag_s(self) -> float:
        """For so long the cleaner leaves a record alone."""
        ...

    @property
    def retention_s(self) -> float:
        """For so long the topics keep a deletion."""
        ...


class ViewOutput(Protocol):
    """The view's topic. Nobody else writes to it: a second writer ends the first one."""

    def publish(self, records: Sequence[ViewRecord], claim: Fence | None) -> Mapping[int, int]:
        """Write records in one transaction, all or none. Returns the offset behind the last of each partition.

        ``claim``: the view's progress, which goes with them. ActiveError when another runner writes.
        """
        ...

    def behind(self, ends: Mapping[int, int]) -> tuple[list[bytes], Mapping[int, int]]:
        """The keys of what stands behind offsets, and the offsets of the end."""
        ...

    def newest(self) -> Position | None:
        """The newest position of what stood behind the offsets that :meth:`behind` was asked for. None where there
        was none. It may be newer than the claim, which a document that is parked keeps back."""
        ...

    def tell(self, held: Sequence[str]) -> None:
        """Note why nothing of the view is published, for ``cdc status``. Without sentences, or with the next claim:
        that it is."""
        ...

    def claimed(self) -> Fence | None:
        """The newest progress of the view in its topic. None before the first."""
        ...

    def answer(self, answer: RunnerAnswer) -> None:
        """Note the answer to who asked for documents once more."""
        ...

    def answered(self) -> str:
        """The id that the newest answer is to. Empty before the first."""
        ...


class SilentOutput:
    """Implements :class:`ViewOutput` for a generation that nobody is to see yet: it says nothing, and knows of nothing
    that was said.

    Its runner's ``above`` is :data:`cdc.views.log_cut.NEVER`, so there is nothing to publish: RuntimeError where it
    tries.
    """

    def publish(self, records: Sequence[ViewRecord], claim: Fence | None) -> Mapping[int, int]:
        """RuntimeError."""
        raise RuntimeError("a generation that is only built has published")

    def behind(self, ends: Mapping[int, int]) -> tuple[list[bytes], Mapping[int, int]]:
        """No key, and no end."""
        return [], {}

    def newest(self) -> Position | None:
        """None."""
        return None

    def tell(self, held: Sequence[str]) -> None:
        """Nobody asks for a view that is not published. The runner's log says what holds it."""

    def claimed(self) -> Fence | None:
        """None."""
        return None

    def answer(self, answer: RunnerAnswer) -> None:
        """RuntimeError: it publishes nothing that was asked for."""
        raise RuntimeError("a generation that is only built has answered")

    def answered(self) -> str:
        """Nothing."""
        return ""


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


REASON_CHARACTERS = 100
"""Of each reason in an answer, which has to fit into a record with all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedKeys(Document):
    """The keys of records, as JSON, whose documents are wanted once more. ``topic``: the view's. ``id``: of the wish.

    A view has one wish at a time. ``asked_ms``: since 1970, 0 for one that nobody waits for any more.
    """

    WHAT = "asked_keys"
    topic: str
    id: str
    keys: list[str] = field(default_factory=list)
    asked_ms: int = 0

    def key(self) -> bytes:
        """The key of its record, one for each topic of a view."""
        return dumped({"what": self.WHAT, "topic": self.topic})


def asked_of(documents: Mapping[bytes, bytes], topic: str) -> AskedKeys | None:
    """The wish to the runner that fills ``topic``, by the state topic's records. None where there is none."""
    value = documents.get(AskedKeys(topic=topic, id="").key())
    return None if value is None else AskedKeys.from_json(value)


def rows_asked(plan: ViewPlan, keys: Iterable[str]) -> list[Row]:
    """The keys of documents. One that is none of the view's keys is passed over: nothing stands under it."""
    found = []
    for key in keys:
        try:
            found.append(key_row(plan, key.encode()))
        except (ValueError, KeyError, TypeError):
            continue
    return list(dict.fromkeys(found))


def in_lots(keys: Sequence[str], most: int, most_bytes: int) -> list[list[str]]:
    """The keys in wishes of a size that a record may have, in UTF-8, as its answer may with a reason for each.

    >>> in_lots(["a", "bb", "c"], 2, 3)
    [['a', 'bb'], ['c']]
    """
    lots: list[list[str]] = []
    size = 0
    for key in keys:
        key_bytes = len(key.encode())
        if not lots or len(lots[-1]) >= most or size + key_bytes > most_bytes:
            lots.append([])
            size = 0
        lots[-1].append(key)
        size += key_bytes
    return lots


class AskedOnce:
    """The wish that a runner has to do with. ``topic``: the view's. ``taken`` is the id of the wish that the state has
    taken up, as it notes it."""

    def __init__(self, log_input: ViewInput, output: ViewOutput, topic: str) -> None:
        self._input = log_input
        self._output = output
        self._topic = topic
        self._open: AskedKeys | None = None

    def begin(self, taken: str) -> None:
        """Take up a wish of a run before that was not answered. LogError when no broker answers."""
        found = asked_of(self._input.documents(), self._topic)
        if found is not None and found.id == taken and self._output.answered() != found.id:
            self._open = found

    def new(self, documents: Mapping[bytes, bytes], taken: str) -> AskedKeys | None:
        """A wish that is not taken up yet. ``documents``: the state topic's records."""
        found = asked_of(documents, self._topic)
        if found is None or found.id == taken:
            return None
        self._open = found
        return found

    def taken(self, taken: str) -> AskedKeys | None:
        """The wish that is taken up and not answered."""
        return self._open if self._open is not None and self._open.id == taken else None

    def answer(self, parked: Mapping[str, str]) -> None:
        """All its keys are published, but those of ``parked``: key of a record -> why, cut short where it is long."""
        assert self._open is not None
        short = {key: why[:REASON_CHARACTERS] for key, why in parked.items()}
        self._output.answer(RunnerAnswer(id=self._open.id, parked=short))
        self._open = None
