"""The ports of a status. Each method raises a CdcError when its server does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cdc.checks.facts import PublicationFacts
from cdc.dead import DeadLetter
from cdc.freshness.opened_stores import OpenedStore
from cdc.progress import Mark, Offsets
from cdc.status.facts import ConnectorFacts, FreshFacts, SourceState
from cdc.status.view_lines import ViewFacts
from cdc.topic import TableName


class TopicStatus(Protocol):
    """The pipeline's topics. LogError when no broker answers, TopicError before ``cdc init``."""

    def state(self) -> Mapping[bytes, bytes]:
        """The newest record of each key of the state topic."""

    def marks(self) -> Sequence[Mark]:
        """The newest progress records, oldest first."""

    def letters(self) -> Iterable[DeadLetter]:
        """Every dead letter. TopicError where there is no such topic."""

    def ends(self, topics: Sequence[str]) -> Offsets:
        """Where those of these topics that exist end."""


class DatabaseStatus(Protocol):
    """The Postgres server. Its session is kept between looks."""

    def facts(self) -> SourceState:
        """The server and the pipeline's slot."""

    def publication(self) -> PublicationFacts | None:
        """The pipeline's publication, if the server has it."""

    def relations(self, tables: Sequence[str], oids: Sequence[int]) -> Mapping[int, TableName]:
        """The relations of the catalog that have one of these names or oids."""

    def children(self, oids: Sequence[int]) -> Mapping[int, Sequence[TableName]]:
        """The tables that inherit from one of these relations and that the settings do not mention."""

    def close(self) -> None:
        """Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPorts:
    """All parts that a status reads.

    ``source``: None where it is no Postgres. ``connector``: None where the native capture writes.
    ``open_store``: a store by its sink's name. ``briefly``: within, a store is given up within a second. ``fresh``:
    what the running processes say, at once where none answers. It never raises. ``views``: those of the settings.
    """

    log: TopicStatus
    source: DatabaseStatus | None
    connector: Callable[[], ConnectorFacts] | None
    open_store: Callable[[str], OpenedStore]
    briefly: Callable[[], AbstractContextManager[None]]
    fresh: Callable[[], FreshFacts] = FreshFacts
    views: Callable[[], Sequence[ViewFacts]] = tuple
