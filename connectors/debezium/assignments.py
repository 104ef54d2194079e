"""``[source.topics]`` as the connector carries it out: a router for each renamed table, and what none can give.

Kafka Connect applies routers one after another, so a later one would meet the topic that an earlier one made. A topic
that is the usual one of another table is therefore refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from cdc.process.errors import ConfigError
from cdc.record.topic_names import TableName, collisions
from cdc.settings.model import Settings
from connectors.debezium import captured_tables as tables
from connectors.debezium.captured_tables import quoted, spelled

_ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
_HINT = '[source.topics] gives one of them another: "schema.table" = "topic"'


def routers(settings: Settings) -> dict[str, str]:
    """The options of the routers, and ``transforms`` in their order. Empty without ``[source.topics]``."""
    config: dict[str, str] = {}
    for number, (table, topic) in enumerate(sorted(settings.source.topics.items()), 1):
        head = f"transforms.topic{number}"
        usual = tables.usual_topic(settings, spelled(table))
        config |= {f"{head}.type": _ROUTER, f"{head}.regex": quoted(usual), f"{head}.replacement": topic}
    names = [option.split(".")[1] for option in config if option.endswith(".type")]
    return config | ({"transforms": ",".join(names)} if names else {})


def connector_topics(settings: Settings) -> frozenset[str]:
    """The topics of the connector's own, beside those of tables."""
    options = settings.debezium.options if settings.debezium is not None else {}
    heartbeat = options.get("topic.heartbeat.prefix", "__debezium-heartbeat")
    parts = ("signals", "schema-history", "message", options.get("topic.transaction", "transaction"))
    own = {options["signal.kafka.topic"]} if "signal.kafka.topic" in options else set()
    own |= {settings.name, f"{heartbeat}.{settings.name}"}
    return frozenset({*own, *(f"{settings.name}.{part}" for part in parts)})


def require_assignable(settings: Settings, met: Iterable[TableName] = (), *, asked: bool = True) -> None:
    """ConfigError for the first of :func:`assignment_problems`."""
    for problem, hint in assignment_problems(settings, met, asked=asked):
        raise ConfigError(problem, hint=hint)


def assignment_problems(
    settings: Settings, met: Iterable[TableName] = (), *, asked: bool = True
) -> Iterator[tuple[str, str]]:
    """Each sentence and its hint: topics that two tables would share, or that are no table's.

    ``met``: the tables that patterns meet, where the source was asked. ``asked``: it is asked for them before one is
    captured, so that a pattern is no ground for a refusal by itself.
    """
    named = [*tables.named_tables(settings), *tables.renamed_tables(settings)]
    captured = dict.fromkeys([*(text for text in named if tables.captures(settings, text)), *map(str, met)])
    meant = {TableName(*text.rsplit(".", 1)): tables.topic_of(settings, text) for text in captured}
    yield from ((problem, _HINT) for problem in collisions(settings.name, meant.items()))
    if settings.source.kind == "debezium":
        own = connector_topics(settings)
        usual = {tables.usual_topic(settings, str(table)): table for table in meant}
        for table, topic in meant.items():
            if topic in own:
                yield f"the table {table} would use the topic {topic}, which the connector keeps for itself", _HINT
            other = usual.get(topic, table)
            if other != table and meant[other] != topic:
                yield f"the table {table} would use the topic {topic}, which is the usual one of {other}", _HINT
        yield from _unparted(settings, list(captured))
        if not asked:
            yield from _met_by_patterns(settings, meant)


def _unparted(settings: Settings, captured: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Tables whose names Debezium writes alike, one of which has another topic: a router sees nothing else of them."""
    alike: dict[str, list[str]] = defaultdict(list)
    for table in captured:
        alike[tables.usual_topic(settings, table)].append(table)
    for usual, users in alike.items():
        if len({tables.topic_of(settings, table) for table in users}) > 1:
            named = " and ".join(sorted(users))
            yield (
                f"Debezium names the tables {named} alike, {usual}, and [source.topics] cannot part them",
                "[source] exclude leaves one of them out; a pipeline of its own can have it",
            )


def _met_by_patterns(settings: Settings, meant: Mapping[TableName, str]) -> Iterator[tuple[str, str]]:
    for table, topic in meant.items():
        usual = tables.usual_table_of(settings, topic)
        if topic != tables.usual_topic(settings, str(table)) and usual is not None and usual not in map(str, meant):
            yield (
                f"the table {table} would use the topic {topic}, which is that of {usual} where a pattern meets it",
                f'give it another topic, or leave that table out: [source] exclude = ["{usual}"]',
            )
