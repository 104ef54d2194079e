"""Dead letters of a generation: apart while it is built, the sink's own from the switch on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from cdc.dead import DeadLetter, Parked, Why, waiting
from cdc.orders import order
from cdc.rebuild.rules import RebuildState


def apart(run: RebuildState) -> str:
    """The name under which the letters of a generation stand while it is built."""
    return f"{run.sink}@{run.generation}"


def taken_over(run: RebuildState, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The records that make the letters of the new generation wait for the sink, each once. ``letters``: the topic."""
    known = list(letters)
    mine = [one for one in waiting(known) if one.sink == apart(run)]
    fresh = Parked(run.sink, known).fresh(replace(one, sink=run.sink) for one in mine)
    return [*fresh, *(replace(one, why=Why.RELEASED, reason="in use now", value=None, headers=()) for one in mine)]


def unread(run: RebuildState, letters: Iterable[DeadLetter]) -> int:
    """How many records the new generation lacks that nobody could read, as one of Debezium's without a value."""
    return sum(one.sink == apart(run) and one.why is Why.UNREADABLE for one in waiting(letters))


def given_up(run: RebuildState, letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The records by which nothing waits any more for a generation that is discarded before it was in use."""
    return [
        replace(one, why=Why.RELEASED, reason="discarded", value=None, headers=())
        for one in waiting(letters)
        if one.sink == apart(run)
    ]


def retried(sink: str, letters: Iterable[DeadLetter], new_id: Callable[[], str]) -> list[DeadLetter]:
    """An order for each key that waits for the sink: its query tries the key on the generation in use now."""
    last = {(one.topic, one.key): one for one in waiting(letters) if one.sink == sink and one.parks}
    return [order(one, Why.RETRY, new_id()) for one in last.values()]
