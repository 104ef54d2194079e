"""What a running stream needs of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cdc.process.errors import ActiveError, TopicError
from cdc.views.known_views import BatchNote
from spark.streams.stream_rows import StreamRecord


def is_published(last: BatchNote | None, batch: int, cuts: Sequence[str], stream: str) -> bool:
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
