"""The histories of a session: where each begins, and from where on its table's stream is written again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc.capture.history import common_tail, gaps
from cdc.process.crash_points import crash_point, declare
from cdc.record.position import Position
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.session.captured_topics import CapturedTopics, PartitionNumbers
from connectors.session.known_tables import LogStanding

declare("history_begun")


def begin_histories(
    topics: CapturedTopics, lanes: PartitionNumbers, records: KafkaStreamLog, epoch: int, standing: LogStanding
) -> None:
    """Let each history take its table's records from now on. A new history gets a gap in each partition, and every
    history does behind a new epoch. Raises TopicError and LogError."""
    begun, known = topics.make_histories(), topics.known
    anew = epoch > known.histories_epoch
    for topic, history in {**known.histories, **begun}.items():
        base, count = lanes.follow(topic, history)
        if anew or topic in begun:
            records.produce(gaps(range(base, base + count), epoch, standing.position))
        crash_point("history_begun")
    records.settle()
    # Behind the gaps: one that is noted without them would hide what it lacks.
    topics.note_histories(begun, epoch)


def seen_in_both(
    held: Mapping[int, Position],
    seen: Mapping[int, Position],
    histories: Mapping[str, str],
    lanes: Callable[[str], tuple[int, int]],
) -> dict[int, Position]:
    """``seen`` (lane -> the position up to which the stream leaves records out), where a table with a history counts as
    holding what its history holds, too. ``held``: the highest streamed position in each lane. Where a table leaves out
    more than it holds, because it was set aside, that stays: older records must not come behind its new reading."""
    found = dict(seen)
    for topic, history in histories.items():
        base, count = lanes(topic)
        other, _ = lanes(history)
        for number in range(count):
            tail = common_tail([held.get(base + number), held.get(other + number)])
            if seen.get(base + number) != held.get(base + number):
                continue
            found.pop(base + number, None)
            if tail is not None:
                found[base + number] = tail
    return found
