"""The two pipelines of a comparison: the same tables, encoding and partitions under names of their own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cdc.errors import ConfigError
from cdc.settings import Settings
from cdc.topic import reserved_topics

MARK = "cdc.compare"
"""The prefix of the logical messages that mark where the comparison begins and ends."""
_NAME_LENGTH = 40
_PUBLICATION_LENGTH = 63
_HEARTBEATS = "__debezium-heartbeat."


@dataclass(frozen=True, slots=True)
class Sides:
    """The settings of both. ``publication_made``: the publication is the comparison's own, and its to drop."""

    native: Settings
    debezium: Settings
    publication_made: bool

    def made(self, topics: Sequence[str]) -> list[str]:
        """Those of these topics that a comparison has made."""
        heads = tuple(f"{head}{side.name}" for side in (self.native, self.debezium) for head in ("", _HEARTBEATS))
        return [topic for topic in topics if topic.startswith(tuple(f"{head}." for head in heads)) or topic in heads]

    def by_table(self, ours: Mapping[str, str], topics: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Table -> its topic at Debezium and at the native capture, empty where that side has none.

        ``ours``: table -> topic of the native capture. ``topics``: all there are. A topic of Debezium's that the native
        capture has no table for stands under its own name.
        """
        ends = {topic.removeprefix(f"{self.native.name}."): table for table, topic in ours.items()}
        own = {*reserved_topics(self.debezium.name), f"{self.debezium.name}.signals"}
        head = f"{self.debezium.name}."
        theirs = {t.removeprefix(head): t for t in topics if t.startswith(head) and t not in own}
        tables = {ends.get(end, end): topic for end, topic in theirs.items()}
        return {table: (tables.get(table, ""), ours.get(table, "")) for table in sorted(tables.keys() | ours.keys())}


def require_debezium(settings: Settings) -> None:
    """ConfigError without a [debezium] section for Postgres, or where columns are masked."""
    if settings.tables:
        raise ConfigError(
            "columns are masked, and the two captures do not mask alike, so they cannot be compared",
            hint="compare on a copy of the database that has no personal data, with settings without masks",
        )
    if settings.debezium is None or settings.debezium.database != "postgres":
        raise ConfigError(
            "a comparison needs a [debezium] section for Postgres: the native capture reads nothing else",
            hint='add [debezium] with url = "http://127.0.0.1:8083"',
        )


def sides_of(settings: Settings, *, published: bool) -> Sides:
    """Both sides of a comparison. ``published``: the server has the pipeline's publication, which both then read."""
    base = settings.name[:_NAME_LENGTH]
    publication = settings.publication if published else f"cdc_compare_{settings.slot}"[:_PUBLICATION_LENGTH]
    native = _side(settings, f"{base}-native", "postgres", publication)
    return Sides(native, _side(settings, f"{base}-debezium", "debezium", publication), not published)


def _side(settings: Settings, name: str, kind: str, publication: str) -> Settings:
    source = settings.source.model_copy(
        update={
            "kind": kind,
            "slot": None,
            "publication": publication,
            "topics": {table: f"{name}.{topic}" for table, topic in settings.source.topics.items()},
        }
    )
    assert settings.debezium is not None
    options = {
        **settings.debezium.options,
        "publication.autocreate.mode": "disabled",
        "message.prefix.exclude.list": r"cdc\.(?!compare$).*",
        "slot.drop.on.stop": "false",
    }
    debezium = settings.debezium.model_copy(
        update={"connector": None, "schemas": False, "signal_table": None, "options": options}
    )
    capture = settings.capture.model_copy(update={"http_address": ""})
    # Tables that are read again are nothing that the other side has.
    snapshot = settings.snapshot.model_copy(update={"watch": timedelta(0)})
    own = {"name": name, "source": source, "debezium": debezium, "capture": capture, "snapshot": snapshot, "sinks": {}}
    return settings.model_copy(update=own)
