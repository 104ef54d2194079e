"""Views of a pipeline: from their plan to a topic and a running keeper."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from cdc.capture.topic_specs import TopicSpec, table_topic_spec
from cdc.figures.http_server import serve_health
from cdc.figures.view_metrics import ViewHealth
from cdc.process.clock import SYSTEM_CLOCK, SignalEvent
from cdc.process.errors import ActiveError, CdcError, ConfigError, Retry, TopicError
from cdc.record.state import SlotState, TopicsState
from cdc.record.topic_names import TableName, state_topic, view_topic, views_topic
from cdc.settings.model import Settings, topics_maker
from cdc.settings.secret_reference import RefusedLogin
from cdc.views.known_views import KnownView, Views, identity_key
from cdc.views.log_cut import NEVER
from cdc.views.state_reach import StateAway, StateForbidden, StateTaken
from cdc.views.view_ports import SilentOutput, ViewInput, ViewOutput
from cdc.views.view_records import PlanOutdated, ViewRecords, view_shape
from cdc.views.view_runner import KeeperParts, ViewRunner
from cdc.views.view_state import ViewState
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import facts_of_made, make_known
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.views.view_ending import fence_above_earlier, sole_keeper
from connectors.views.view_log import KafkaViewInput, KafkaViewOutput, WatchedViewInput
from connectors.views.view_planning import PlannedView, planned_views, view_settings
from connectors.views.view_topics import ViewsLook, ViewTopicsChanged, known_views, state_path
from connectors.views.view_turns import OpenedView, ViewTurns

log = logging.getLogger(__name__)

_END_S = 60.0
"""So long a turn may take to end."""


class ViewsBeside:
    """Views kept by a thread. ``keep`` keeps them until the event, and raises what stops all: it ends the thread
    alone."""

    def __init__(self, keep: Callable[[threading.Event], None]) -> None:
        self.fault: Exception | None = None
        """Why no view is kept any more. None while they are, and where they were asked to end."""
        self._keep = keep
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="views", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> bool:
        """Ask for an end and wait for it. Returns whether it came in time. The next start does the rest."""
        self._stopping.set()
        self._thread.join(_END_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._keep(self._stopping)
        except CdcError as failure:
            log.error("views_ended", extra={"reason": failure.message, "hint": failure.hint})
            self.fault = failure
        except Exception as failure:
            log.error("views_ended", extra={"reason": f"{type(failure).__name__}: a bug"})
            self.fault = failure


@contextmanager
def views_beside(settings: Settings) -> Iterator[ViewsBeside]:
    """All views of the settings, kept while the block runs. Behind it what had ended them is raised.

    ConfigError where the settings have none.
    """
    if not settings.views:
        raise ConfigError("the settings name no view", hint="leave --views out, or add a [views.NAME] section")
    beside = ViewsBeside(lambda stopping: keep_views(settings, (), stopping, begun=True))
    beside.start()
    try:
        yield beside
    finally:
        if not beside.end():
            log.warning("views_left_behind")
    if beside.fault is not None:
        raise beside.fault


_IDLE_S = 0.05
_AGAIN_S = 1.0
_AWAY_S = 5.0
"""Between two tries where the brokers are away."""
_LOOK_S = 10.0
"""A view that is held writes nothing, and would not hear that another generation has taken its place."""


def ensure_view(settings: Settings, view: PlannedView) -> KnownView:
    """Make what is missing of a view: the views topic, its own topic, and the note of its shape.

    ConfigError where another view is published under its name. TopicError where its topic was made anew.
    """
    admin = TopicAdmin(settings.log)
    admin.create([_views_spec(settings)])
    views = known_views(settings)
    known, identity = views.known.get(view.name), views.identities.get(view.name)
    if known is None:
        made = made_generation(settings, view, 1)
        KafkaCompactedTopic(settings.log, views_topic(settings.name)).write(
            [noted_identity(view, 1), (made.key, made.to_json())]
        )
        return made
    if difference := view.other_than(known, identity):
        raise ConfigError(
            f"the view {view.name} {difference}",
            hint=f"cdc view rebuild {view.name} builds it as it is now, and then lets that take its place",
        )
    said = topic_fault(settings, known)
    if said:
        raise TopicError(said, hint=f"cdc view rebuild {view.name} makes it once more, in another topic")
    if identity != view.identity:
        # Noted by none, or before a type became a wider one. A record of the generation's own: nobody else's is lost.
        KafkaCompactedTopic(settings.log, views_topic(settings.name)).write([noted_identity(view, known.generation)])
    return known


def noted_identity(view: PlannedView, generation: int) -> tuple[bytes, bytes]:
    """The record that says what a generation of a view is made of."""
    return identity_key(view.name, generation), view.identity.to_json()


def topic_fault(settings: Settings, known: KnownView) -> str:
    """Why a view's topic is not the one that was made for it, in a sentence. Empty where it is."""
    facts = facts_of_made(TopicAdmin(settings.log), [known.topic]).get(known.topic)
    if facts is not None and facts.topic_id == known.topic_id:
        return ""
    return f"the topic {known.topic} {'is gone' if facts is None else 'was made anew'}"


def made_generation(settings: Settings, view: PlannedView, generation: int) -> KnownView:
    """Make the topic of a generation. Nobody knows of it yet."""
    admin = TopicAdmin(settings.log)
    topic = view_topic(settings.name, view.name, generation)
    spec = table_topic_spec(settings.log, topic)
    if view.settings.partitions:
        spec = replace(spec, partitions=view.settings.partitions)
    facts = make_known(admin, [spec])[1][topic]
    return KnownView(
        view=view.name,
        generation=generation,
        topic=topic,
        topic_id=facts.topic_id,
        partitions=facts.partitions,
        digest=view.digest,
        shape=view_shape(view.name, view.plan, topic).to_json().decode(),
    )


def _views_spec(settings: Settings) -> TopicSpec:
    spec = table_topic_spec(settings.log, views_topic(settings.name))
    return replace(spec, partitions=1, config={"cleanup.policy": "compact"})


@contextmanager
def opened_keeper(
    settings: Settings, view: PlannedView, known: KnownView, watch: Callable[[int, int], None] | None = None
) -> Iterator[ViewRunner]:
    """A view's runner, begun. The block closes it and its state.

    ``watch``: it only builds its state and publishes nothing, and says so how far it reads: see
    :class:`connectors.views.view_log.WatchedViewInput`. Raises TopicError when the pipeline has no topics yet.
    """
    tables, times_s, database = topics_of(settings, view)
    with ExitStack() as stack:
        path = state_path(settings, view.name, known.generation)
        stack.enter_context(sole_keeper(path))
        state = stack.enter_context(closing(ViewState(path, view.plan, known.generation)))
        source: ViewInput
        output: ViewOutput
        if watch is not None:
            source, output = WatchedViewInput(settings, *times_s, watch), SilentOutput()
        else:
            source = KafkaViewInput(settings, *times_s)
            output = KafkaViewOutput(settings, view.name, known.generation, known.topic, known.partitions)
        stack.enter_context(closing(source))
        above = NEVER if watch is not None else fence_above_earlier(settings, known, state.reached.published, output)
        records = ViewRecords(
            view.plan, view.name, known.topic, known.partitions, name=settings.name, database=database
        )
        parts = KeeperParts(view.plan, state, source, output, records, tables, view.post, known.topic_id, above)
        keeper = ViewRunner(parts, clock=SYSTEM_CLOCK, largest=int(view.settings.largest))
        keeper.begin()
        yield keeper


def topics_of(settings: Settings, view: PlannedView) -> tuple[dict[TableName, str], tuple[float, float], str]:
    """The topics of a view's tables, for how long the cleaner leaves a record alone and topics keep deletions, and the
    source's database. TopicError when the pipeline has no topics yet."""
    documents = KafkaCompactedTopic(settings.log, state_topic(settings.name)).read()
    topics, slot = TopicsState.find(documents), SlotState.find(documents)
    if topics is None:
        raise TopicError("the pipeline has no topics yet", hint=f"{topics_maker(settings)} makes them")
    tables = {shape.table: shape.topic for shape in view.shapes}
    facts = facts_of_made(TopicAdmin(settings.log), tables.values())
    lag_ms = min(int(facts[topic].config.get("min.compaction.lag.ms", 0)) for topic in tables.values())
    kept_ms = min(int(facts[topic].config.get("delete.retention.ms", 0)) for topic in tables.values())
    return tables, (lag_ms / 1000, kept_ms / 1000), slot.database if slot is not None else ""


def run_views(settings: Settings, names: Sequence[str], *, until_caught_up: bool) -> None:
    """Keep these views, all by default, until SIGTERM or Ctrl-C, or until each has published all that the log holds.

    See :func:`keep_views`.
    """
    stopping = SignalEvent()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, stop)
    # The modules stay for good: the collector need not walk them. It runs as often as ever: clients of Kafka that are
    # done with hang in cycles, each with its threads.
    gc.collect()
    gc.freeze()
    keep_views(settings, names, stopping, until_caught_up=until_caught_up)


def keep_views(
    settings: Settings,
    names: Sequence[str],
    stopping: threading.Event,
    *,
    until_caught_up: bool = False,
    begun: bool = False,
) -> None:
    """Keep these views, all by default, until ``stopping``, or until each has published all that the log holds.

    All are opened anew where another generation of one is published, and where the brokers were away: as often as it
    takes once the views have been kept for a turn, from the start with ``begun``, and never with ``until_caught_up``.
    A refused login is tried again for as long as everywhere.
    One that cannot go on, or whose state is away, lets the others go on. Raises what stops a view.
    """
    if not settings.views:
        view_settings(settings, "")

    login = RefusedLogin(SYSTEM_CLOCK)

    def turned() -> None:
        nonlocal begun
        begun = True
        login.over()

    while not stopping.is_set():
        try:
            _keep_views(settings, names, stopping, turned, until_caught_up=until_caught_up)
            return
        except (ViewTopicsChanged, PlanOutdated) as changed:
            log.warning("view_starts_again", extra={"reason": changed.message})
            stopping.wait(_AGAIN_S)
        except CdcError as failure:
            passes = failure.retry in {Retry.NOW, Retry.LATER} or login.may_pass(failure)
            if until_caught_up or not begun or not passes:
                raise
            log.warning("views_again", extra={"reason": failure.message})
            stopping.wait(_AWAY_S)


def _keep_views(
    settings: Settings,
    names: Sequence[str],
    stopping: threading.Event,
    turned: Callable[[], None],
    *,
    until_caught_up: bool,
) -> None:
    views = planned_views(settings, names or list(settings.views))
    with ExitStack() as stack:
        health = ViewHealth(SYSTEM_CLOCK, settings.limits.lag.total_seconds(), settings.name)
        if address := settings.view_runner.http_address:
            stack.enter_context(closing(serve_health(health, address, "[view_runner] http_address")))
        turns = ViewTurns({name: partial(_opened, settings, one) for name, one in views.items()})
        stack.enter_context(closing(turns))
        health.views = turns.figures
        look = stack.enter_context(closing(ViewsLook(settings)))
        known = look.known().known
        seen = {name: known[name].generation if name in known else 0 for name in views}
        looked_s = SYSTEM_CLOCK.monotonic()
        while not stopping.is_set():
            idle = turns.turned()
            turned()
            if SYSTEM_CLOCK.monotonic() - looked_s >= _LOOK_S:
                looked_s = SYSTEM_CLOCK.monotonic()
                require_published(settings, look.known(), turns.paths, seen)
            if idle:
                if until_caught_up and turns.level:
                    break
                stopping.wait(_IDLE_S)
        if (fault := turns.fault()) is not None:
            raise fault


def require_published(settings: Settings, views: Views, paths: Mapping[str, Path], seen: dict[str, int]) -> None:
    """ViewTopicsChanged where a view's state, by ``paths``, is of another generation than the one that is published.

    ``seen``: of each view that is kept here the generation that was seen first, 0 before any. One that has stopped or
    rests has no path, and the generation that takes its place is often what mends it.
    """
    for name, first in list(seen.items()):
        known = views.known.get(name)
        if known is None:
            continue
        seen[name] = first or known.generation
        other = known.generation != (first or known.generation)
        if name in paths:
            other = paths[name] != state_path(settings, name, known.generation)
        if other:
            raise ViewTopicsChanged(f"generation {known.generation} of the view {name} is published now")


@contextmanager
def _opened(settings: Settings, view: PlannedView | CdcError) -> Iterator[OpenedView]:
    """A view's runner, begun. Its topic is made where it has none.

    StateAway where its state cannot be used now: also where its place is forbidden, and the view has claimed before.
    Raises why it has no plan, where it has none.
    """
    if isinstance(view, CdcError):
        raise view
    known = ensure_view(settings, view)
    path = state_path(settings, view.name, known.generation)
    with ExitStack() as stack:
        try:
            keeper = stack.enter_context(opened_keeper(settings, view, known))
        except ActiveError as kept:
            coming = known_views(settings).coming.get(view.name)
            if coming is None or coming.generation != known.generation:
                raise
            raise StateTaken(kept.message, hint=f"cdc view rebuild {view.name} publishes it") from None
        except StateForbidden as refused:
            if view.name not in known_views(settings).progress:
                raise
            raise StateAway(refused.message, hint=refused.hint) from None
        if known_views(settings).known.get(view.name) != known:
            # Its producer may be the newer one, so nothing else would end it.
            raise ViewTopicsChanged(f"another generation of the view {view.name} is published now")
        yield OpenedView(keeper, path)
