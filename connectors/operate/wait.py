"""The questions of a wait for freshness to Kafka and Postgres: :class:`cdc.freshness.run.WaitPorts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress

from cdc.process.errors import CdcError, TopicError, UsageError
from cdc.record.progress import epoch_of
from cdc.record.state import TopicsState
from cdc.record.topic_names import dead_topic, state_topic
from cdc.settings.model import Settings, require_postgres
from cdc.wire.dead_letter import DeadLetter
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.dead_letters import DeadLetterTopic
from connectors.kafka.doubted_topics import require_broker
from connectors.postgres.server.connections import LOOK_LIMITS, connect
from connectors.postgres.server.cut_reader import write_fence
from connectors.postgres.server.table_selection import Pattern
from connectors.views.view_topics import known_views, taken_views, view_patterns

_APPLICATION = "cdc wait"


def read_epoch(settings: Settings) -> int | None:
    """The pipeline's epoch. None before it has one. LogError, at once, when no broker takes a connection."""
    require_broker(settings.log)
    return epoch_of(_state(settings), settings.source.kind)


def read_letters(settings: Settings) -> Iterable[DeadLetter]:
    """The pipeline's dead letters. LogError, at once, when no broker takes a connection."""
    require_broker(settings.log)
    return DeadLetterTopic(settings.log, dead_topic(settings.name)).read()


def topic_of(settings: Settings, patterns: Sequence[str], table: str) -> str:
    """The topic of a table or a view that a sink with these ``tables`` takes. UsageError where it takes none of that
    name, TopicError where a view was not published yet."""
    views = {str(name): view.topic for name, view in taken_views(known_views(settings), patterns).items()}
    state = TopicsState.find(_state(settings))
    tables = dict(state.tables) if state is not None else {}
    if patterns:
        taking = [Pattern.parse(text) for text in patterns]
        tables = {name: topic for name, topic in tables.items() if any(one.names(name) for one in taking)}
    found = views.get(table) or tables.get(table)
    if found is not None:
        return found
    named = [Pattern.parse(text) for text in view_patterns(patterns)]
    if any(pattern.names(table) for pattern in named):
        raise TopicError(f"{table} is not published yet", hint="cdc view run publishes it")
    known = ", ".join(sorted({*views, *tables})) or "none yet"
    raise UsageError(f"the sink takes no table {table}", hint=f"its tables are {known}")


def _state(settings: Settings) -> Mapping[bytes, bytes]:
    return KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()


def nudge(settings: Settings) -> None:
    """Write a fence, so that a quiet server's log moves. Nothing where Postgres cannot be asked."""
    with suppress(CdcError):
        require_postgres(settings, _APPLICATION)
        with closing(connect(settings.source, application_name=_APPLICATION, options=LOOK_LIMITS)) as session:
            write_fence(session)
