"""The ports of requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cdc.condition import Condition
from cdc.ports import CompactedTopic
from cdc.schema import TableSchema
from cdc.topic import TableName


class RereadSource(Protocol):
    """A session with the Postgres server. SourceError when it does not answer."""

    def insert_lsn(self) -> int:
        """An LSN that every commit so far lies below."""

    def check(self, table: TableName, wanted: Condition) -> None:
        """ConfigError unless the columns' types take the condition. No row is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadPorts:
    """Everything that requests use. ``state``: the pipeline's topic. ``source`` opens a session. ``shape``: the newest
    that the schema topic has of a table."""

    state: CompactedTopic
    source: Callable[[], AbstractContextManager[RereadSource]]
    shape: Callable[[TableName], TableSchema | None]
