"""Tables whose topic was another one before: pure.

A topic that a table gets later begins with the table's next change, so a store built from it lacks rows (H197). It has
to be filled first. One that was another table's holds that table's records, and stays refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from cdc.errors import ConfigError
from cdc.state import TopicsState

CONNECT_RESET = "cdc connect offsets --reset, then cdc connect deploy"
NEW_EPOCH = "cdc init --new-epoch, then cdc snapshot"
"""The commands that read every table again, into the topics that the settings name."""


class MovedTopic(NamedTuple):
    """A table, the topic that its records are in, and the one that the settings give it."""

    table: str
    before: str
    now: str

    @property
    def said(self) -> str:
        """One sentence."""
        return f"the rows of {self.table} are in the topic {self.before}, and the settings name {self.now}"

    def cure(self, filled: str) -> str:
        """The way back, and ``filled``: the commands that fill the new topic. Empty where none does."""
        back = f'put it back: [source.topics] "{self.table}" = "{self.before}"'
        return f"{back}; or fill the new topic: {filled}" if filled else back


def moved_topics(known: TopicsState | None, meant: Mapping[str, str]) -> list[MovedTopic]:
    """Those of ``meant`` (table -> topic) that have another topic in the notes, by name."""
    tables = known.tables if known is not None else {}
    found = ((table, tables[table], topic) for table, topic in meant.items() if table in tables)
    return sorted(MovedTopic(*one) for one in found if one[1] != one[2])


def require_unused(known: TopicsState | None, meant: Mapping[str, str]) -> None:
    """ConfigError where a table gets a topic that held records of a table before."""
    for table, topic in _used(known, meant):
        raise ConfigError(
            f"{table} would use the topic {topic}, which holds records from before",
            hint=f'give it a topic of a new name: [source.topics] "{table}" = "..."',
        )


def require_kept(moved: Iterable[MovedTopic], filled: str) -> None:
    """ConfigError for the first table that moved. ``filled``: as :meth:`MovedTopic.cure` takes it."""
    for one in moved:
        raise ConfigError(one.said, hint=one.cure(filled))


def _used(known: TopicsState | None, meant: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if known is None:
        return
    for table, topic in sorted(meant.items()):
        if topic in known.topics and known.tables.get(table) != topic:
            yield table, topic
