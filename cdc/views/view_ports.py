"""The ports of a view's runner to the log. Doubles are in :mod:`cdc.views.memory_views`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cdc.record.documents import FIRST, FORMAT, dumped, read_members, record_of
from cdc.record.position import Position
from cdc.record.progress import Offsets, Progress
from cdc.record.schema import TableSchema
from cdc.views.fences import Fence
from cdc.views.view_records import ViewRecord
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.records import Lot, Span


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

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
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

    Its runner's ``above`` is :data:`cdc.views.fences.NEVER`, so there is nothing to publish: RuntimeError where it
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
