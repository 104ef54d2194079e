"""``cdc forget``, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.dead import Why
from cdc.errors import ConfigError, UsageError
from cdc.forget.ports import ForgetPorts
from cdc.forget.run import Forget, ForgetPlan
from cdc.forget.typed_key import TypedKey
from cdc.rebuild.rules import find_rebuild
from cdc.settings import require_postgres
from cdc.state import TopicsState
from cdc.topic import dead_topic, state_topic
from cdc.wiring import open_schemas, open_state, require_broker
from cdc.wiring.dead import open_letters
from sinks.stores import spec_of

if TYPE_CHECKING:
    from cdc.dead import DeadLetter
    from cdc.forget.ports import StoreTraces
    from cdc.schema import TableSchema
    from cdc.settings import Settings
    from sinks.registry import SinkSpec


def open_forget(
    settings: Settings, table: str, key: str, *, timeout_s: float, trim_letters: bool, clock: Clock = SYSTEM_CLOCK
) -> Forget:
    """A search for what is left of one deleted row. Nothing is changed before it runs.

    UsageError for what is no captured table, or no key of it. ConfigError where Debezium captures. LogError, at once,
    when no broker takes a connection.
    """
    from connectors.kafka.whole_topics import WholeTopics
    from connectors.postgres.kept_row import source_has
    from connectors.view_forgetting import views_of

    _require_native(settings)
    require_broker(settings)
    documents = open_state(settings).read()
    shapes = _shapes(settings, documents, table)
    plan = ForgetPlan(key=TypedKey.read(key, shapes[-1]), shapes=shapes, trim_letters=trim_letters, timeout_s=timeout_s)
    ports = ForgetPorts(
        in_source=partial(source_has, settings, plan.shape),
        log=WholeTopics(settings.log, dead_topic(settings.name)),
        requests=state_topic(settings.name),
        order=partial(_order, settings),
        stores=_stores(settings, documents, clock),
        fed=tuple(settings.sinks),
        views=views_of(settings, plan.shape.table),
    )
    return Forget(plan, ports, clock)


def _require_native(settings: Settings) -> None:
    require_postgres(settings, "cdc forget")
    if settings.source.kind != "postgres":
        raise ConfigError(
            "cdc forget looks into pipelines that cdc run captures, and here Debezium does",
            hint="its topics have records and offsets of its own: look for the key by cdc events and cdc verify",
        )


def _shapes(settings: Settings, documents: Mapping[bytes, bytes], name: str) -> list[TableSchema]:
    """Every version of a captured table's shape. A table may be named without its schema."""
    topics = TopicsState.find(documents)
    captured = topics.tables if topics is not None else {}
    versions = [shape for shape in open_schemas(settings).versions() if str(shape.table) in captured]
    found = [shape for shape in versions if str(shape.table) == name]
    found = found or [shape for shape in versions if shape.table.table == name]
    if not found:
        raise UsageError(
            f"{name} is no captured table", hint=f"the tables are {', '.join(sorted(captured)[:20]) or 'none yet'}"
        )
    if len({shape.table for shape in found}) > 1:
        raise UsageError(f"{name} is more than one captured table", hint="write it as schema.table")
    return sorted(found, key=lambda shape: shape.version)


def _order(settings: Settings, asked: Sequence[tuple[DeadLetter, Why]], timeout_s: float) -> None:
    letters = open_letters(settings)
    for why in (Why.RETRY, Why.DROP):
        some = [letter for letter, wanted in asked if wanted is why]
        if some:
            # The answers are on the topic, which is read again.
            for _ in letters.order(some, why, timeout_s=timeout_s):
                pass


def _stores(
    settings: Settings, documents: Mapping[bytes, bytes], clock: Clock
) -> dict[str, Callable[[], AbstractContextManager[StoreTraces]]]:
    """Each sink's store, whichever tables it takes now: it may have taken others before."""

    @contextmanager
    def opened(sink: str) -> Iterator[StoreTraces]:
        from sinks.kinds import beside, kind_named
        from sinks.row_traces import GenerationTraces
        from sinks.tries import looking

        spec, last = spec_of(sink, settings), find_rebuild(documents, sink)
        kept = kind_named(spec.kind).generations
        numbers = range(1, last.generation + 1) if last is not None and kept is not None else ()
        others = [(number, beside(spec, number)) for number in numbers]
        if kept is not None and kept.apart:
            used = _in_use(spec, clock) if others else 0
            others = [(number, place) for number, place in others if number != used]
        with looking(), closing(GenerationTraces(spec, others, clock)) as traces:
            yield traces

    return {sink: partial(opened, sink) for sink in settings.sinks}


def _in_use(spec: SinkSpec, clock: Clock) -> int:
    from sinks.kinds import open_generations

    with closing(open_generations(spec, clock)) as generations:
        return generations.in_use()
