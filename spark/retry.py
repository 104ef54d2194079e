"""Dead letters applied after all: those of a retry, and those of keys that were freed while their batch ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc.dead import DeadLetter, Parked, Why, place
from cdc.orders import Refusals
from cdc.progress import Hold
from sinks.port import Sink
from sinks.table_shapes import SchemaBook
from spark.apply import Outcome, apply_events, events_of_letters, refused_letters


def apply_letters(
    letters: Sequence[DeadLetter], *, sink: Sink, book: SchemaBook, holds: Mapping[str, Hold]
) -> Refusals:
    """Apply the newest of each key. The letters that the store refused, each with the reason. A held table takes
    nothing."""
    held = {place(one): holds[one.topic].reason for one in letters if one.topic in holds}
    events = events_of_letters([one for one in letters if one.topic not in holds])
    refused = sink.apply(events, book).refused
    return held | {(one.topic, one.partition, one.offset): one.reason for one in refused}


def unheld_letters(outcome: Outcome, holds: Mapping[str, Hold]) -> Outcome:
    """An outcome less the letters of held tables: their records are read again when they are held no more."""
    return replace(outcome, letters=tuple(one for one in outcome.letters if one.topic not in holds))


def without_released(outcome: Outcome, parked: Parked, sink: Sink, book: SchemaBook) -> Outcome:
    """Tasks of a batch know the keys that were parked when it began. Those that were released since have their
    events here: they are applied now, instead of parking the key behind nothing."""
    refused = {(one.topic, one.key) for one in outcome.letters if one.why is Why.REFUSED}
    late = {
        place(one): one
        for one in outcome.letters
        if one.why is Why.BEHIND and (one.topic, one.key) not in refused and not parked.waits(one.topic, one.key)
    }
    if not late:
        return outcome
    applied = apply_events(events_of_letters(list(late.values())), sink, book)
    kept = tuple(one for one in outcome.letters if place(one) not in late)
    return replace(outcome, letters=(*kept, *refused_letters(applied.refused)), applied=outcome.applied + applied)
