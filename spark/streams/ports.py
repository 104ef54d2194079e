"""What a running stream needs of the log, and the note of each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc.process.errors import ActiveError, TopicError
from cdc.record.documents import FIRST, FORMAT, dumped, read_members, record_of
from spark.streams.stream_rows import StreamRecord

_ABOUT = "the note of a stream's batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNote:
    """A batch that stands in the topic. ``cuts``: where it ends, of each source, as Spark's checkpoint has it.

    ``watermark_ms``: up to which its windows were closed. ``at_us``: the least time of its cuts. ``late``: reason ->
    how many events were set apart so far. ``state_rows``: how many the state keeps, in ``state_partitions``.
    """

    batch: int
    cuts: list[str]
    watermark_ms: int = 0
    at_us: int = 0
    rows: int = 0
    late: dict[str, int] = field(default_factory=dict)
    state_rows: int = 0
    state_partitions: int = 0

    def to_json(self) -> bytes:
        """The record's value. :meth:`from_json` reads it back."""
        members: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return dumped({FORMAT: FIRST} | members)

    @classmethod
    def from_json(cls, value: bytes) -> BatchNote:
        """Read :meth:`to_json` back. FormatError and DamagedError as every stored document."""
        return record_of(cls, read_members(value, _ABOUT), _ABOUT)


def stands_already(last: BatchNote | None, batch: int, cuts: Sequence[str], stream: str) -> bool:
    """Whether a batch stands in the topic. TopicError where that one ends elsewhere, ActiveError out of turn."""
    number = last.batch if last is not None else -1
    if last is not None and batch == number:
        if list(last.cuts) != list(cuts):
            raise TopicError(
                f"batch {batch} of the stream {stream} ends elsewhere in the checkpoint than in its topic",
                hint=f"the checkpoint is another one's: cdc stream rebuild {stream} begins anew",
            )
        return True
    if batch != number + 1:
        raise ActiveError(
            f"the stream {stream} is at batch {number} in its topic, and its checkpoint at {batch}",
            hint=f"the checkpoint is an older or another one: cdc stream rebuild {stream} begins anew",
        )
    return False


class StreamOutput(Protocol):
    """The topics of one generation. Another writer's are ended by it. LogError when the brokers do not answer."""

    def last(self) -> BatchNote | None:
        """The newest batch that stands in the topic."""

    def put(self, records: Sequence[StreamRecord], note: BatchNote) -> None:
        """Write a batch and its note in one transaction. ActiveError when another one writes."""

    def close(self) -> None:
        """Close what is open."""
