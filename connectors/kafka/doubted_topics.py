"""A broker's word that it has no such topic, doubted for a while: one that has just started knows none yet, and one
that stood still does not know those that were made meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import LogError, TopicError
from cdc.progress import Offsets
from cdc.topic_specs import TopicSpec
from connectors.kafka.topic_problems import TopicFacts

_DOUBTED_S, _EVERY_S = 5.0, 0.5


def stays_gone(topics: Collection[str], names: Callable[[], Collection[str]], clock: Clock = SYSTEM_CLOCK) -> bool:
    """Whether one of these topics is gone for five seconds on end. ``names``: of the topics that there are. It is not
    known where that raises LogError."""
    until_s = clock.monotonic() + _DOUBTED_S
    while True:
        try:
            if set(topics) <= set(names()):
                return False
        except LogError:
            return False
        if clock.monotonic() >= until_s:
            return True
        clock.sleep(_EVERY_S)


class DescribesTopics(Protocol):
    """The part of :class:`connectors.kafka.admin.TopicAdmin` that is used here."""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """The facts of those topics that exist, as a broker has it."""


class AsksForEnds(Protocol):
    """The part of the same that is used here."""

    def end_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        """The ends of all partitions of these topics. TopicError where a broker does not know one."""


class MakesTopics(DescribesTopics, Protocol):
    """The same, and what makes topics."""

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        """Make those that are missing."""


def facts_of_made(
    admin: DescribesTopics, topics: Iterable[str], clock: Clock = SYSTEM_CLOCK
) -> Mapping[str, TopicFacts]:
    """The facts of topics that were made. One is left out that is gone for five seconds on end: a broker answers a
    question that it was asked while it stood still before it hears of the topics made meanwhile.

    LogError when no broker answers.
    """
    until_s = clock.monotonic() + _DOUBTED_S
    wanted = set(topics)
    found = admin.describe(wanted)
    while (missing := wanted - found.keys()) and clock.monotonic() < until_s:
        clock.sleep(_EVERY_S)
        found |= admin.describe(missing)
    return found


def ends_of_made(admin: AsksForEnds, partitions: Mapping[str, int], clock: Clock = SYSTEM_CLOCK) -> Offsets:
    """The ends of topics that were made. Raises TopicError where a broker says for five seconds on end that one of them
    is not there, and LogError when none answers."""
    until_s = clock.monotonic() + _DOUBTED_S
    while True:
        try:
            return admin.end_offsets(partitions)
        except TopicError:
            if clock.monotonic() >= until_s:
                raise
        clock.sleep(_EVERY_S)


def make_known(
    admin: MakesTopics, specs: Sequence[TopicSpec], clock: Clock = SYSTEM_CLOCK
) -> tuple[list[str], Mapping[str, TopicFacts]]:
    """Make topics, unless they are there. The names of those that were made, and the facts of all.

    LogError where a broker says then that there is no such topic: it lags behind, which passes, and is no fault of the
    topic's table.
    """
    made = admin.create(specs)
    found = facts_of_made(admin, [spec.topic for spec in specs], clock)
    unknown = [spec.topic for spec in specs if spec.topic not in found]
    if unknown:
        raise LogError(
            f"the topic {unknown[0]} is made, and a broker does not know it yet",
            hint="a broker that lags behind comes to know it by itself; cdc check says whether it is there",
        )
    return made, found
