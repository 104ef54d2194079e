"""The ports of ``cdc forget``: :mod:`cdc.forget.ports` on Postgres, Kafka and the stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from cdc.clock import Clock
from cdc.dead import DeadLetter, Why
from cdc.errors import ConfigError, UsageError
from cdc.forget.masked_key import asked_key
from cdc.forget.ports import ForgetPorts, StoreTraces
from cdc.forget.run import Forget, ForgetPlan, ForgetWish
from cdc.letters.run import LettersRun
from cdc.masks import masks_of
from cdc.rebuild.rules import find_rebuild
from cdc.schema import TableSchema
from cdc.settings import Settings, require_postgres
from cdc.state import TopicsState
from cdc.topic import TableName, dead_topic, schema_topic, state_topic
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.reach import require_broker
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.kafka.whole_topics import WholeTopics
from connectors.postgres.kept_row import source_has, tables_now
from connectors.view_forgetting import documents_that_may_nest, views_of
from sinks.kinds import beside, kind_named, open_generations
from sinks.registry import SinkSpec
from sinks.stores import spec_of
from sinks.tries import looking


def forget_of(settings: Settings, wish: ForgetWish, letters: Callable[[], LettersRun], clock: Clock) -> Forget:
    """A search for what is left of one deleted row. Nothing is changed before it runs.

    UsageError for what is no captured table, or no key of it. ConfigError where Debezium captures. LogError, at once,
    when no broker takes a connection.
    """
    _require_native(settings)
    require_broker(settings.log)
    documents = KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()
    shapes, renamed = _shapes(settings, documents, wish.table)
    asked = asked_key(wish.key, shapes[-1], masks_of(settings))
    plan = ForgetPlan(
        key=asked.key,
        also=asked.also,
        note=asked.note,
        shapes=shapes,
        renamed=renamed,
        trim_letters=wish.trim_letters,
        timeout_s=wish.timeout_s,
    )
    views = views_of(settings, plan.shape.table)
    ports = ForgetPorts(
        in_source=partial(source_has, settings, plan.shape),
        log=WholeTopics(settings.log, dead_topic(settings.name)),
        requests=state_topic(settings.name),
        order=partial(_order, letters),
        stores=_stores(settings, documents, clock),
        fed=tuple(settings.sinks),
        views=views,
        may_nest=documents_that_may_nest(settings, views),
    )
    return Forget(plan, ports, clock)


def _require_native(settings: Settings) -> None:
    require_postgres(settings, "cdc forget")
    if settings.source.kind != "postgres":
        raise ConfigError(
            "cdc forget looks into pipelines that cdc run captures, and here Debezium does",
            hint="its topics have records and offsets of its own: look for the key by cdc events and cdc verify",
        )


def _shapes(
    settings: Settings, documents: Mapping[bytes, bytes], name: str
) -> tuple[list[TableSchema], list[list[TableSchema]]]:
    """Every version of a captured table's shape, and the same under each name that the table had before (H307).

    A table may be named without its schema.
    """
    topics = TopicsState.find(documents)
    captured = topics.tables if topics is not None else {}
    registry = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
    versions = [shape for shape in registry.versions() if str(shape.table) in captured]
    found = [shape for shape in versions if str(shape.table) == name]
    found = found or [shape for shape in versions if shape.table.table == name]
    if not found:
        raise UsageError(
            f"{name} is no captured table", hint=f"the tables are {', '.join(sorted(captured)[:20]) or 'none yet'}"
        )
    if len({shape.table for shape in found}) > 1:
        raise UsageError(f"{name} is more than one captured table", hint="write it as schema.table")
    found.sort(key=lambda shape: shape.version)
    return found, _renamed(settings, found[-1], registry.versions())


def _renamed(settings: Settings, newest: TableSchema, every: Iterable[TableSchema]) -> list[list[TableSchema]]:
    """Shapes of the same relation by other names, but those that are another table's now."""
    before: dict[TableName, list[TableSchema]] = {}
    for shape in every:
        if newest.oid and shape.oid == newest.oid and shape.table != newest.table:
            before.setdefault(shape.table, []).append(shape)
    if before:
        there = tables_now(settings)
        before = {table: shapes for table, shapes in before.items() if table not in there}
    return [sorted(shapes, key=lambda shape: shape.version) for _, shapes in sorted(before.items())]


def _order(opened: Callable[[], LettersRun], asked: Sequence[tuple[DeadLetter, Why]], timeout_s: float) -> None:
    letters = opened()
    for why in (Why.RETRY, Why.DROP):
        some = [letter for letter, wanted in asked if wanted is why]
        # The answers are on the topic, which is read again.
        for _ in letters.order(some, why, timeout_s=timeout_s) if some else ():
            pass


def _stores(
    settings: Settings, documents: Mapping[bytes, bytes], clock: Clock
) -> dict[str, Callable[[], AbstractContextManager[StoreTraces]]]:
    """Each sink's store, whichever tables it takes now: it may have taken others before."""

    @contextmanager
    def opened(sink: str) -> Iterator[StoreTraces]:
        from sinks.row_traces import GenerationTraces  # noqa: PLC0415 - Arrow is of use here alone

        spec, last = spec_of(sink, settings), find_rebuild(documents, sink)
        with looking():
            others = _generations(spec, last.generation if last is not None else 0, clock)
            with closing(GenerationTraces(spec, others, clock)) as traces:
                yield traces

    return {sink: partial(opened, sink) for sink in settings.sinks}


def _generations(spec: SinkSpec, newest: int, clock: Clock) -> list[tuple[int, SinkSpec]]:
    """The places of the generations that are not in use, those that may be gone too."""
    kept = kind_named(spec.kind).generations
    if kept is None or not newest:
        return []
    places = [(number, beside(spec, number)) for number in range(1, newest + 1)]
    if not kept.apart:
        return places
    with closing(open_generations(spec, clock)) as generations:
        used = generations.in_use()
    return [(number, place) for number, place in places if number != used]
