"""The ports of a drop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cdc.checks.facts import ServerFacts, SlotFacts
from cdc.ports import CompactedTopic


class DropSource(Protocol):
    """A session with the Postgres server, for one pipeline. SourceError when it does not answer."""

    def server(self) -> ServerFacts:
        """The server and our role on it."""

    def slot(self) -> SlotFacts | None:
        """The pipeline's slot. None where the server has none."""

    def transaction(self) -> AbstractContextManager[object]:
        """Drops within take effect when it ends, and the publication goes only then. An error undoes its end."""

    def drop_publication(self) -> bool:
        """False when there is none. ConfigError when it is not ours to drop."""

    def drop_slot(self) -> bool:
        """False when there is none. ActiveError when something reads it. The server drops it at once."""


class DropTopics(Protocol):
    """The log's topics. LogError when no broker answers."""

    def names(self) -> Sequence[str]:
        """Every topic of the cluster."""

    def delete(self, topics: Iterable[str]) -> None:
        """Delete these. One that does not exist is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPorts:
    """Everything that a drop uses.

    ``reach`` raises LogError, at once, when no broker takes a connection. ``source`` opens a session. ``state``: the
    pipeline's topic. TopicError when a broker does not know it. ``gone``: whether no broker has named a topic for some
    seconds on end. ``topics`` opens the administration of the log. ``views``: the topics of documents, and last the one
    that names them. Nothing before the first view.
    """

    reach: Callable[[], None]
    source: Callable[[], AbstractContextManager[DropSource]]
    state: CompactedTopic
    topics: Callable[[], DropTopics]
    gone: Callable[[str], bool]
    views: Callable[[], Sequence[str]] = tuple
