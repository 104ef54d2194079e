"""A table keeps its topic, and a topic its table: pure.

Another topic would begin with the table's next change, so that a store built from it lacked rows. One that was another
table's holds that table's records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from cdc.errors import ConfigError
from cdc.json_bytes import dumped
from cdc.state import Document, TopicsState


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedAnewState(Document):
    """A topic of Debezium's whose table got another key: rows under the former one stay in it. A record of its own,
    which any sink may write."""

    WHAT: ClassVar[str] = "keyed_anew"
    topic: str

    def key(self) -> bytes:
        """See :meth:`cdc.state.Document.key`."""
        return dumped({"what": self.WHAT, "topic": self.topic})


def topic_problems(known: TopicsState | None, meant: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each sentence and its hint, by the tables' names. ``meant``: table -> its topic by the settings. ``known``: the
    notes, None before any."""
    if known is None:
        return
    for table, topic in sorted(meant.items()):
        before = known.tables.get(table)
        if before is not None and before != topic:
            hint = f'put it back: [source.topics] "{table}" = "{before}"; a pipeline of another name may have another'
            yield f"{table} has the topic {before}, and the settings name {topic}", hint
        elif before is None and topic in known.topics:
            hint = f'give it a topic of a new name: [source.topics] "{table}" = "..."'
            yield f"{table} would use the topic {topic}, which holds records from before", hint


def require_kept_topics(known: TopicsState | None, meant: Mapping[str, str]) -> None:
    """ConfigError for the first of :func:`topic_problems`."""
    for problem, hint in topic_problems(known, meant):
        raise ConfigError(problem, hint=hint)
