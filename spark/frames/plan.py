"""The offsets that a read takes, and the task that reads each: pure.

A Kafka partition is read by one task from its first offset to its last, so a task sees the changes of a key in their
order. Small partitions share a task: a task costs more than the reading of a few records.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from cdc.record.progress import Offsets
from cdc.wire.records import BEGINNING, Span

Places = dict[str, dict[int, int]]


def spans_of(starts: Offsets, ends: Offsets) -> list[Span]:
    """The ranges that may hold a record, by topic and partition. A partition that ``starts`` lacks is read whole."""
    found = []
    for topic in sorted(ends):
        begun = starts.get(topic, {})
        for partition, end in sorted(ends[topic].items()):
            span = Span(topic, partition, begun.get(partition, BEGINNING), end)
            if span.most_records:
                found.append(span)
    return found


def packed(spans: Sequence[Span], slots: int) -> list[tuple[Span, ...]]:
    """Ranges in at most ``slots`` tasks of about the same size, the largest first. No range is split, none is empty."""
    tasks: list[list[Span]] = [[] for _ in range(min(max(1, slots), len(spans)))]
    loads = [(0, 0, number) for number in range(len(tasks))]
    for span in sorted(spans, key=lambda one: (-one.most_records, one)):
        records, count, number = heapq.heappop(loads)
        tasks[number].append(span)
        heapq.heappush(loads, (records + span.most_records, count + 1, number))
    return [tuple(sorted(task)) for task in tasks if task]


def trimmed(starts: Offsets, ends: Offsets, most: int) -> Places:
    """Where a batch of at most ``most`` records ends (0: no limit), each partition by its share of what is left.

    Never below where the partition starts, nor above its end.
    """
    spans = spans_of(starts, ends)
    total = sum(span.most_records for span in spans)
    found = {topic: dict(parts) for topic, parts in ends.items()}
    for topic, parts in found.items():
        for partition, end in parts.items():
            parts[partition] = max(end, starts.get(topic, {}).get(partition, BEGINNING))
    if not most or total <= most:
        return found
    left = most
    for span in spans:
        taken = span.most_records * most // total
        left -= taken
        found[span.topic][span.partition] = max(0, span.start) + taken
    for span in spans:
        if not left:
            break
        at = found[span.topic][span.partition]
        more = min(left, 1, span.end - at)
        found[span.topic][span.partition] = at + more
        left -= more
    return found
