"""A stream computed anew over all of its events, beside what stands in its topics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import orjson
from pyspark.errors import PySparkException

from cdc.process.errors import PoisonError
from cdc.views.known_views import BatchNote
from cdc.views.view_records import row_of
from cdc.wire.format import NEW_ROW, NO_OLD_ROW
from spark.streams.past_join import refusal_in, require_shown, seen
from spark.streams.stream_query import RunningStream, StreamParts, raw_events
from spark.streams.stream_rows import StreamRecord, written
from spark.streams.stream_text import analysed
from spark.streams.typed_events import counted, judged, set_apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROW = NO_OLD_ROW + NEW_ROW + b"{"
_NEAR = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What stands in a stream's topics: key -> row as JSON, and reason -> how many events are set apart."""

    rows: Mapping[str, str]
    late: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The difference of what was computed from what is published. ``lacking``: keys that the topic has not.
    ``strange``: keys that it should not have."""

    keys: int
    counted: int
    late: int
    lacking: Sequence[str] = ()
    strange: Sequence[str] = ()
    other: Sequence[str] = ()
    other_late: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether both are one."""
        return not (self.lacking or self.strange or self.other or self.other_late)

    def sentences(self, stream: str) -> Iterator[str]:
        """What to say of it."""
        yield f"{stream}: {self.keys:,} keys, of {self.counted:,} events; {self.late:,} events are set apart"
        for found, what in (
            (self.lacking, "is missing"),
            (self.strange, "should not be there"),
            (self.other, "differs"),
        ):
            yield from (f"{stream}: {key} {what}" for key in found[:20])
            if len(found) > 20:
                yield f"{stream}: {len(found) - 20:,} more: {what}"
        if self.other_late:
            yield f"{stream}: {self.other_late}"


def verified(session: SparkSession, parts: StreamParts, last: BatchNote, published: Published) -> Comparison:
    """Compare what a stream has published up to a batch. A text in mode ``update`` is run as a batch job. One in mode
    ``append`` is run as a stream once more: which windows are closed is a matter of the watermark. SinkError where a
    store does not show a history up to there any more, TopicError where an event cannot be joined."""
    require_shown(parts.pasts.values(), last.cuts)
    try:
        return _verified(session, parts, last, published)
    except PySparkException as failure:
        tables = {name: past.table for name, past in parts.pasts.items()}
        raise refusal_in(parts.spec.name, tables, str(failure)) or failure from None


def _verified(session: SparkSession, parts: StreamParts, last: BatchNote, published: Published) -> Comparison:
    spec = parts.spec
    ends = [orjson.loads(cut) for cut in last.cuts if cut]
    endings = {topic: orjson.dumps(end).decode() for end in reversed(ends) for topic in end["topics"]}
    total, late = 0, Counter[str]()
    frames = {}
    for one in spec.events:
        frame = judged(raw_events(session, parts.options, one.topic, endings[one.topic]), one)
        frames[one.name] = seen(frame, one, parts.pasts)
        total += counted(frame, one).count()
        late.update({row["reason"]: row["count"] for row in set_apart(frame, one).groupBy("reason").count().collect()})
    if spec.mode == "update":
        result = written(analysed(session, spec, frames), spec.key).toArrow().to_pylist()
        rows = {one["key"]: one["row"] for one in result}
        _require_one_row_a_key(spec.name, [one["key"] for one in result])
    else:
        rows = _replayed(session, parts, endings)
    return compared(rows, published, total, late)


def _require_one_row_a_key(stream: str, keys: Sequence[str]) -> None:
    """PoisonError for two rows of one key: those of different batches have replaced each other in the topic."""
    doubled = sorted(key for key, count in Counter(keys).items() if count > 1)
    if doubled:
        raise PoisonError(
            f"the stream {stream} has several rows of the key {doubled[0]}, of which its table keeps the last",
            hint=f"let key name every column that the text groups by, then cdc stream rebuild {stream}",
        )


def compared(rows: Mapping[str, str], published: Published, total: int, late: Mapping[str, int]) -> Comparison:
    """Compare by value: numbers with a fraction to nine digits, because their sum has the order of the tasks."""
    both = rows.keys() & published.rows.keys()
    different = dict(late) != dict(published.late)
    return Comparison(
        keys=len(rows),
        counted=total,
        late=sum(late.values()),
        lacking=sorted(rows.keys() - published.rows.keys()),
        strange=sorted(published.rows.keys() - rows.keys()),
        other=sorted(
            key
            for key in both
            if rows[key] != published.rows[key]
            and not alike(orjson.loads(rows[key]), orjson.loads(published.rows[key]))
        ),
        other_late=f"set apart are {dict(published.late)}, and by the rules {dict(late)}" if different else "",
    )


def alike(one: Any, other: Any) -> bool:
    """Whether two JSON values are one, but for the last digits of a fraction.

    >>> alike({"a": 0.1 + 0.2}, {"a": 0.3}), alike({"a": 1}, {"a": 2}), alike("x", "x")
    (True, False, True)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_NEAR)
    return bool(one == other)


class MemoryOutput:
    """Implements :class:`spark.streams.ports.StreamOutput`. ``rows``: key -> row."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self._last: BatchNote | None = None

    def last(self) -> BatchNote | None:
        return self._last

    def put(self, records: Sequence[StreamRecord], note: BatchNote) -> None:
        for one in records:
            if one.key is not None and one.value is not None and one.value.startswith(_ROW):
                self.rows[one.key.decode()] = row_of(one.value).decode()
        self._last = note

    def close(self) -> None:
        """Nothing is open."""


def _replayed(session: SparkSession, parts: StreamParts, endings: Mapping[str, str]) -> dict[str, str]:
    output = MemoryOutput()
    with TemporaryDirectory(prefix="headrace-verify-") as folder:
        spec = replace(parts.spec, name=f"{parts.spec.name}_verified")
        mine = replace(parts, spec=spec, output=output, checkpoint=folder, endings=endings)
        running = RunningStream(session, mine, swept=False)
        try:
            running.settle()
        finally:
            running.stop()
    return output.rows


def rows_of(records: Iterator[tuple[bytes, bytes | None, bytes]]) -> dict[str, str]:
    """Key -> row, of a topic's records (key, value, position) in any order. Marks are left out."""
    newest: dict[bytes, tuple[bytes, bytes]] = {}
    for key, value, pos in records:
        if value is not None and value.startswith(_ROW) and pos >= newest.get(key, (b"",))[0]:
            newest[key] = pos, value
    return {key.decode(): row_of(value).decode() for key, (_, value) in newest.items()}
