"""The ports of a comparison of two captures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cdc.comparison.compared_record import ComparedRecord, Facts
from cdc.cuts import Cut, RepairRow, VerifiedTable


class ComparedCapture(Protocol):
    """One of the two captures, on topics and a slot of its own."""

    def start(self, *, rows: bool) -> None:
        """Prepare it and let it capture. ``rows``: with a first snapshot that reads the tables' rows."""

    def check(self) -> None:
        """Raise what ended it."""

    def close(self) -> None:
        """End it, if it was started here and ends with this command. Never raises."""


class ComparedNative(ComparedCapture, Protocol):
    """The native capture."""

    def reached(self) -> int:
        """The LSN below which every commit is in its topics. 0 before it says so."""


class Debezium(ComparedCapture, Protocol):
    """Debezium's connector."""

    def marks(self) -> Collection[str]:
        """The contents of the marks that it has written."""


class ComparisonSource(Protocol):
    """The Postgres server that both read. SourceError when it does not answer."""

    def mark(self, content: str) -> int:
        """Commit a logical message that both captures pass. An LSN behind its commit."""

    def cut(self) -> Cut:
        """End the last cut and begin a new one."""

    def tables(self) -> Mapping[str, VerifiedTable]:
        """The captured tables by name, those that can be read."""

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        """Those of these keys (store keys) that have a row at this cut, in batches."""

    def close(self) -> None:
        """End its sessions. Never raises."""


class ComparedTopics(Protocol):
    """The topics that both captures have written. LogError when no broker answers."""

    def ends(self) -> object:
        """Where Debezium's topics end: equal while nothing is written to them."""

    def topics(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Table -> topic as the native capture made them, and the names of all topics."""

    def records(self, topic: str, table: str) -> list[ComparedRecord]:
        """A topic, whole, in the order of its partitions. Empty where there is none."""

    def facts(self) -> Facts:
        """The facts that explain differences in each table's records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPorts:
    """Everything that a comparison uses.

    ``clean`` removes connector, slots, topics and publication of a comparison as far as they are there, a sentence for
    each. ``run``: runs a command to its end. Returns its exit code, and raises UsageError when it cannot be started.
    """

    native: ComparedNative
    debezium: Debezium
    source: ComparisonSource
    written: ComparedTopics
    clean: Callable[[], Iterable[str]]
    run: Callable[[Sequence[str]], int]
