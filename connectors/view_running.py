"""Views of a pipeline: from their plan to a topic and a running keeper."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from cdc.clock import SYSTEM_CLOCK
from cdc.errors import CdcError, ConfigError, TopicError
from cdc.settings import Settings, topics_maker
from cdc.state import SlotState, TopicsState
from cdc.topic import TableName, state_topic, view_topic, views_topic
from cdc.topic_specs import TopicSpec, table_topic_spec
from cdc.view_metrics import ViewHealth
from cdc.views.keeper import Keeper, KeeperParts
from cdc.views.known_views import KnownView, late_topic
from cdc.views.record_rows import view_shape
from cdc.views.state_faults import StateAway, StateForbidden
from cdc.views.state_places import require_its_engine
from cdc.views.view_records import ViewRecords
from cdc.views.view_state import ViewState
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.view_eager import EagerViewInput, EagerViewOutput, ViewTopicsChanged
from connectors.view_ending import sole_keeper
from connectors.view_log import KafkaViewInput, KafkaViewOutput
from connectors.view_looks import other_state_path, state_path
from connectors.view_planning import PlannedView, planned_views, view_settings
from connectors.view_topics import known_views
from connectors.view_turns import OpenedView, RunsView, StateFigures, ViewTurns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.spark_session import SessionSpec

log = logging.getLogger(__name__)
_IDLE_S = 0.05
_AGAIN_S = 1.0


def ensure_view(settings: Settings, view: PlannedView) -> KnownView:
    """Make what is missing of a view: the views topic, its own topic, and the note of its shape.

    ConfigError where another text is published under its name. TopicError where its topic was made anew.
    """
    admin = TopicAdmin(settings.log)
    admin.create([_views_spec(settings)])
    known = known_views(settings).known.get(view.name)
    if view.window is not None:
        late = table_topic_spec(settings.log, late_topic(settings.name, view.name))
        admin.create([replace(late, partitions=1)])
    if known is None:
        return _made(settings, admin, view)
    if known.digest != view.digest:
        raise ConfigError(
            f"the view {view.name} is published from another text{' or function' if view.post else ''}",
            hint="a changed one is another view: give it another name in cdc.toml, and the stores that name",
        )
    facts = admin.describe([known.topic]).get(known.topic)
    if facts is None or facts.topic_id != known.topic_id:
        said = "is gone" if facts is None else "was made anew"
        raise TopicError(
            f"the topic {known.topic} {said}", hint="give the view another name in cdc.toml, and the stores that name"
        )
    return known


def _made(settings: Settings, admin: TopicAdmin, view: PlannedView, generation: int = 1) -> KnownView:
    topic = view_topic(settings.name, view.name, generation)
    spec = table_topic_spec(settings.log, topic)
    if view.settings.partitions:
        spec = replace(spec, partitions=view.settings.partitions)
    admin.create([spec])
    facts = admin.describe([topic])[topic]
    made = KnownView(
        view=view.name,
        generation=generation,
        topic=topic,
        topic_id=facts.topic_id,
        partitions=facts.partitions,
        digest=view.digest,
        shape=view_shape(view.name, view.plan, topic).to_json().decode(),
    )
    KafkaCompactedTopic(settings.log, views_topic(settings.name)).write([(made.key, made.to_json())])
    return made


def _views_spec(settings: Settings) -> TopicSpec:
    spec = table_topic_spec(settings.log, views_topic(settings.name))
    return replace(spec, partitions=1, config={"cleanup.policy": "compact"})


@contextmanager
def opened_keeper(settings: Settings, view: PlannedView, known: KnownView) -> Iterator[tuple[Keeper, ViewState]]:
    """A view's runner, begun, with its state. The block closes both.

    Raises TopicError when the pipeline has no topics yet.
    """
    tables, times_s, database = _topics_of(settings, view)
    with ExitStack() as stack:
        path = state_path(settings, view.name, known.generation)
        stack.enter_context(sole_keeper(path))
        state = stack.enter_context(closing(ViewState(path, view.plan, known.generation)))
        source, output = _ends_of(settings, view, known, state, tables, times_s)
        stack.enter_context(closing(source))
        records = ViewRecords(
            view.plan, view.name, known.topic, known.partitions, name=settings.name, database=database
        )
        late = late_topic(settings.name, view.name)
        parts = KeeperParts(
            view.plan, state, source, output, records, tables, view.post, view.window, late, known.topic_id
        )
        keeper = Keeper(parts, clock=SYSTEM_CLOCK, largest=int(view.settings.largest))
        keeper.begin()
        yield keeper, state


def _topics_of(settings: Settings, view: PlannedView) -> tuple[dict[TableName, str], tuple[float, float], str]:
    """The topics of a view's tables, for how long the cleaner leaves a record alone and topics keep deletions, and the
    source's database. TopicError when the pipeline has no topics yet."""
    documents = KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()
    topics, slot = TopicsState.find(documents), SlotState.find(documents)
    if topics is None:
        raise TopicError("the pipeline has no topics yet", hint=f"{topics_maker(settings)} makes them")
    tables = {shape.table: shape.topic for shape in view.shapes}
    facts = TopicAdmin(settings.log).describe(tables.values())
    lag_ms = min(int(facts[topic].config.get("min.compaction.lag.ms", 0)) for topic in tables.values())
    kept_ms = min(int(facts[topic].config.get("delete.retention.ms", 0)) for topic in tables.values())
    return tables, (lag_ms / 1000, kept_ms / 1000), slot.database if slot is not None else ""


def _ends_of(
    settings: Settings,
    view: PlannedView,
    known: KnownView,
    state: ViewState,
    tables: Mapping[TableName, str],
    times_s: tuple[float, float],
) -> tuple[KafkaViewInput | EagerViewInput, KafkaViewOutput]:
    """The log's two ends. ``times_s``: for how long the cleaner leaves a record alone, and topics keep deletions."""
    place = settings, view.name, known.generation, known.topic, known.partitions
    if not view.eager:
        return KafkaViewInput(settings, *times_s), KafkaViewOutput(*place)
    output = EagerViewOutput(*place)
    lag_s, kept_s = times_s
    source = EagerViewInput(settings, state, tables, output.shown, compaction_lag_s=lag_s, retention_s=kept_s)
    return source, output


def run_views(
    settings: Settings,
    names: Sequence[str],
    *,
    until_caught_up: bool,
    spark: Callable[[], SessionSpec] | None = None,
) -> None:
    """Keep these views, all by default, until SIGTERM or Ctrl-C, or until each has published all that the log holds.

    See :func:`keep_views`.
    """
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, stop)
    keep_views(settings, names, stopping, until_caught_up=until_caught_up, spark=spark)


def keep_views(
    settings: Settings,
    names: Sequence[str],
    stopping: threading.Event,
    *,
    until_caught_up: bool = False,
    spark: Callable[[], SessionSpec] | None = None,
) -> None:
    """Keep these views, all by default, until ``stopping``, or until each has published all that the log holds.

    All are opened anew where a table of one is in another topic. ``spark``: the session for those whose state executors
    keep. One that cannot go on, or whose state is away, lets the others go on. Raises what stops a view.
    """
    if not settings.views:
        view_settings(settings, "")
    while not stopping.is_set():
        try:
            _keep_views(settings, names, stopping, until_caught_up=until_caught_up, spark=spark)
            return
        except ViewTopicsChanged as changed:
            log.warning("view_starts_again", extra={"reason": changed.message})
            stopping.wait(_AGAIN_S)


def _keep_views(
    settings: Settings,
    names: Sequence[str],
    stopping: threading.Event,
    *,
    until_caught_up: bool,
    spark: Callable[[], SessionSpec] | None,
) -> None:
    views = planned_views(settings, names or list(settings.views))
    with ExitStack() as stack:
        health = ViewHealth(SYSTEM_CLOCK, settings.limits.lag.total_seconds(), settings.name)
        if settings.view_runner.http_address:
            stack.enter_context(closing(health.serve(settings.view_runner.http_address)))
        session = _session_for([one for one in views.values() if isinstance(one, PlannedView)], spark, stack)
        turns = ViewTurns({name: partial(_opened, settings, one, session) for name, one in views.items()})
        stack.enter_context(closing(turns))
        health.views = turns.figures
        while not stopping.is_set():
            if turns.turned():
                if until_caught_up and turns.level:
                    break
                stopping.wait(_IDLE_S)
        if (fault := turns.fault()) is not None:
            raise fault


def _session_for(
    views: Sequence[PlannedView], spark: Callable[[], SessionSpec] | None, stack: ExitStack
) -> SparkSession | None:
    """A session where executors keep one of these views."""
    if spark is None or not any(one.place.on_executors for one in views):
        return None
    try:
        from connectors.view_bucketed import opened_session  # noqa: PLC0415 - it loads Spark's client
    except ImportError as missing:
        raise ConfigError(
            f"a state on executors needs a package that is not installed: {missing.name}",
            hint="pip install 'headrace[all]'",
        ) from None
    return stack.enter_context(opened_session(spark()))


@contextmanager
def _opened(settings: Settings, view: PlannedView | CdcError, session: SparkSession | None) -> Iterator[OpenedView]:
    """A view's runner, begun, with the figures of its state, by the engine that its section names. Its topic is made
    where it has none.

    StateAway where its state cannot be used now: also where its place is forbidden, and the view has claimed before.
    Raises why it has no plan, where it has none.
    """
    if isinstance(view, CdcError):
        raise view
    known = ensure_view(settings, view)
    path = state_path(settings, view.name, known.generation)
    require_its_engine(view.name, view.place, path, other_state_path(settings, view.name, known.generation))
    with ExitStack() as stack:
        try:
            keeper, state = stack.enter_context(_begun(settings, view, known, session))
        except StateForbidden as refused:
            if view.name not in known_views(settings).progress:
                raise
            raise StateAway(refused.message, hint=refused.hint) from None
        yield OpenedView(keeper, state, path)


@contextmanager
def _begun(
    settings: Settings, view: PlannedView, known: KnownView, session: SparkSession | None
) -> Iterator[tuple[RunsView, StateFigures]]:
    place = view.place
    if not place.on_executors or session is None:
        with opened_keeper(settings, view, known) as opened:
            yield opened
        return
    from connectors.view_bucketed import opened_bucket_keeper  # noqa: PLC0415 - it loads Spark's client

    tables, times_s, database = _topics_of(settings, view)
    path = state_path(settings, view.name, known.generation)
    with (
        sole_keeper(path),
        opened_bucket_keeper(
            settings, view.shipped(path, place.buckets), known, session, tables, (times_s, database)
        ) as keeper,
    ):
        yield keeper, keeper
