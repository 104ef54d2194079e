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
from spark.streams.past_join import joined_events, refusal_in, require_shown
from spark.streams.stream_query import RunningStream, StreamParts, raw_events
from spark.streams.stream_rows import StreamRecord, json_texts
from spark.streams.stream_text import analysed
from spark.streams.typed_events import set_apart, text_events, with_reasons

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROW = NO_OLD_ROW + NEW_ROW + b"{"
_NEAR = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What stands in a stream's topics: key -> row as JSON, and reason -> how many events are set apart."""

    rows: Mapping[str, str]
    set_apart: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The difference of what was computed from what is published. ``events``: how many the text was given.
    ``missing``: keys that the topic has not. ``unexpected``: keys that it should not have. ``different``: keys with
    another row. ``set_apart_difference``: how the counts of what is set apart differ, empty where they do not."""

    keys: int
    events: int
    set_apart: int
    missing: Sequence[str] = ()
    unexpected: Sequence[str] = ()
    different: Sequence[str] = ()
    set_apart_difference: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether both are one."""
        return not (self.missing or self.unexpected or self.different or self.set_apart_difference)

    def sentences(self, stream: str) -> Iterator[str]:
        """What to say of it."""
        yield f"{stream}: {self.keys:,} keys, of {self.events:,} events; {self.set_apart:,} events are set apart"
        for found, what in (
            (self.missing, "is missing"),
            (self.unexpected, "should not be there"),
            (self.different, "differs"),
        ):
            yield from (f"{stream}: {key} {what}" for key in found[:20])
            if len(found) > 20:
                yield f"{stream}: {len(found) - 20:,} more: {what}"
        if self.set_apart_difference:
            yield f"{stream}: {self.set_apart_difference}"


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
    total, apart = 0, Counter[str]()
    frames = {}
    for one in spec.events:
        frame = with_reasons(raw_events(session, parts.options, one.topic, endings[one.topic]), one)
        frames[one.name] = joined_events(frame, one, parts.pasts)
        total += text_events(frame, one).count()
        apart.update({row["reason"]: row["count"] for row in set_apart(frame, one).groupBy("reason").count().collect()})
    if spec.mode == "update":
        result = json_texts(analysed(session, spec, frames), spec.key).toArrow().to_pylist()
        rows = {one["key"]: one["row"] for one in result}
        _require_one_row_a_key(spec.name, [one["key"] for one in result])
    else:
        rows = _replayed(session, parts, endings)
    return compared(rows, published, total, apart)


def _require_one_row_a_key(stream: str, keys: Sequence[str]) -> None:
    """PoisonError for two rows of one key: those of different batches have replaced each other in the topic."""
    doubled = sorted(key for key, count in Counter(keys).items() if count > 1)
    if doubled:
        raise PoisonError(
            f"the stream {stream} has several rows of the key {doubled[0]}, of which its table keeps the last",
            hint=f"let key name every column that the text groups by, then cdc stream rebuild {stream}",
        )


def compared(rows: Mapping[str, str], published: Published, total: int, apart: Mapping[str, int]) -> Comparison:
    """Compare by value: numbers with a fraction to nine digits, because their sum has the order of the tasks."""
    both = rows.keys() & published.rows.keys()
    same = dict(apart) == dict(published.set_apart)
    return Comparison(
        keys=len(rows),
        events=total,
        set_apart=sum(apart.values()),
        missing=sorted(rows.keys() - published.rows.keys()),
        unexpected=sorted(published.rows.keys() - rows.keys()),
        different=sorted(
            key
            for key in both
            if rows[key] != published.rows[key]
            and not alike(orjson.loads(rows[key]), orjson.loads(published.rows[key]))
        ),
        set_apart_difference=(
            "" if same else f"set apart are {dict(published.set_apart)}, and by the rules {dict(apart)}"
        ),
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
