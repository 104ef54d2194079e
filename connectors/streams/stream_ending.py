"""A stream's end, and that of its former generations: the ends that ``cdc stream drop`` brings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cdc.process.errors import UsageError
from cdc.record.topic_names import STREAM_SCHEMA, TableName, set_apart_topic, stream_topic, views_topic
from cdc.settings.model import Settings
from cdc.views.known_views import batch_key, stream_key
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.streams.stream_topics import known_streams
from connectors.views.view_log import KafkaViewOutput
from connectors.views.view_topics import generation_topics, known_views, taken_streams


def drop_stream(
    settings: Settings, name: str, remove_checkpoints: Callable[[Iterable[int]], Iterator[str]], *, former: bool
) -> Iterator[str]:
    """End a stream: what is known of it, its checkpoints and its topics. A sentence for each.

    ``remove_checkpoints``: of generations; gives the folders that there were. ``former``: only the generations before
    the published one. It may be killed at any step and run again. UsageError where there is nothing of that kind.
    """
    known = known_streams(settings)
    topics = generation_topics(settings, name, stream_topic)
    published = known[name].known.generation if name in known else None
    if published is None and (former or not topics):
        raise UsageError(f"no stream {name} was published", hint=f"published streams: {', '.join(known) or 'none'}")
    newest = max([*topics, published or 0])
    numbers = range(1, published if former and published is not None else newest + 1)
    if former and not topics.keys() & set(numbers):
        raise UsageError(f"the stream {name} has no former generation", hint="cdc stream list shows the published ones")
    documents = KafkaCompactedTopic(settings.log, views_topic(settings.name))
    if not former:
        takers = _takers(settings, name)
        if published is not None:
            # First: a runner that is ended finds that its stream is gone, and no new generation.
            documents.write([(stream_key(name), None)])
            yield f"stream {name}: forgotten"
        yield from (f"sink {sink} still has {name} in its tables: take it out there; its rows stay" for sink in takers)
    for number in numbers:
        if number in topics:
            # Whoever still writes it cannot any more.
            KafkaViewOutput(settings, name, number, topics[number], 1)
    yield from (f"checkpoint {folder}: removed" for folder in remove_checkpoints(numbers))
    if TopicAdmin(settings.log).describe([views_topic(settings.name)]):
        documents.write([(batch_key(name, number), None) for number in numbers])
    # Last: they say what there is to drop once nothing else knows the stream. The first of them goes last.
    aside = set_apart_topic(settings.name, name)
    names = TopicAdmin(settings.log).names()
    going = [aside] if not former and aside in names else []
    for topic in [*going, *(topics[number] for number in reversed(numbers) if number in topics)]:
        TopicAdmin(settings.log).delete([topic])
        yield f"topic {topic}: deleted"


def _takers(settings: Settings, name: str) -> list[str]:
    """The sinks of the settings that take a stream."""
    views, table = known_views(settings), TableName(STREAM_SCHEMA, name)
    return [sink for sink, one in settings.sinks.items() if table in taken_streams(views, one.tables)]
