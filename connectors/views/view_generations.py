"""``cdc view rebuild``: a view built anew, by the text that the settings have now.

Where the text is the published one, its state is thrown away, and its runner builds that anew. Another text, or a topic
that is gone, makes another generation of the view: its state is built beside the published one, which its runner keeps
meanwhile. Then it takes that one's place in the views topic, and is published at a fence above all that was before,
with a sweep mark behind the last document: so each store takes its documents and lets the others go.

Its former topic stays until there is another generation: nobody knows which sinks have looked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ActiveError, CdcError, UsageError
from cdc.record.position import Lsn
from cdc.record.progress import Progress
from cdc.record.topic_names import views_topic
from cdc.settings.model import Settings
from cdc.views.known_views import KnownView, coming_key
from cdc.views.log_cut import BEFORE_ALL, Fence, fence_of
from cdc.views.state_reach import StateDamaged
from cdc.views.view_runner import ViewRunner
from connectors.kafka.broker_answers import require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.feed import newest_progress
from connectors.views.view_ending import end_generation, end_state, throw_state_away
from connectors.views.view_planning import PlannedView, planned_views
from connectors.views.view_running import made_generation, noted_identity, opened_keeper, topic_fault
from connectors.views.view_topics import generation_topics, known_views

declare("generation_noted", "generation_built", "generation_known", "generation_published", "generation_tidied")

_TELL_S = 5.0
_MARK_S = 1.0
_IDLE_S = 0.1
_CLAIM_S = 300.0
"""For so long a runner elsewhere may take to publish all documents."""


class ViewRebuild:
    """One run of the command. ``mark``: writes a mark to the source's log, so that there is a fence above what was
    published also where the source rests. ``tell``: is told what goes on, a sentence at a time.

    It may be killed at any step and run again: it goes on from there.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        mark: Callable[[], object],
        tell: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._settings = settings
        self._mark = mark
        self._tell = tell
        self._clock = clock
        self._topic = KafkaCompactedTopic(settings.log, views_topic(settings.name))
        self._told_s = clock.monotonic()
        self._marked_s = clock.monotonic() - _MARK_S

    def run(self, name: str) -> None:
        """Build a view anew, to the end.

        UsageError where the settings have no such view, or it was never published. ConfigError for a text that cannot
        be kept. ActiveError while a runner keeps the state that is to be made.
        """
        settings = self._settings
        if name not in settings.views:
            known_names = ", ".join(settings.views) or "none yet"
            raise UsageError(f"the settings name no view {name}", hint=f"views: {known_names}")
        require_broker(settings.log)
        found = known_views(settings)
        known, coming = found.known.get(name), found.coming.get(name)
        if known is None:
            raise UsageError(f"the view {name} was never published", hint=f"cdc view run {name} builds it")
        view = planned_views(settings, [name])[name]
        if isinstance(view, CdcError):
            raise view
        same = not view.other_than(known, found.identities.get(name))
        if coming is None and same and not topic_fault(settings, known):
            self._tell(throw_state_away(settings, name, known.generation))
            return
        if coming is not None and coming == known and _is_shown(found.progress.get(name)):
            # Killed when only its end was left: a runner may keep it by now.
            self._tidy(coming)
            return
        coming = self._noted(view, known, coming)
        if coming.generation != known.generation:
            self._past_damage(coming, partial(self._build, view, known, coming))
            self._require_own(coming)
            self._topic.write([(coming.key, coming.to_json())])
            crash_point("generation_known")
        self._past_damage(coming, partial(self._publish, view, coming))
        self._tidy(coming)

    def _past_damage(self, coming: KnownView, step: Callable[[], None]) -> None:
        """Do a step over the state of a generation. One that is damaged is removed, and the step builds it anew: nobody
        else would, because this command goes on with what it finds."""
        try:
            step()
        except StateDamaged as damaged:
            self._tell(f"{coming.view}: {damaged.message}")
            for said in end_state(self._settings, coming.view, coming.generation):
                self._tell(said)
            step()

    def _require_own(self, coming: KnownView) -> None:
        """ActiveError where another command has given this generation up meanwhile, or has ended the view."""
        found = known_views(self._settings)
        if found.coming.get(coming.view) != coming or topic_fault(self._settings, coming):
            raise ActiveError(
                f"another command has ended generation {coming.generation} of the view {coming.view}",
                hint="run it again, once nobody else rebuilds or drops the view",
            )

    def _noted(self, view: PlannedView, known: KnownView, coming: KnownView | None) -> KnownView:
        """The generation that is to come, with its topic. One of yet another text is given up."""
        if coming is not None and coming.digest == view.digest and not topic_fault(self._settings, coming):
            return coming
        if coming is not None and coming.generation == known.generation:
            # It was published to its end, or nearly: what is wanted now comes behind it.
            coming = None
        topics = generation_topics(self._settings, view.name)
        if coming is not None:
            topics[coming.generation] = coming.topic
        for number, topic in topics.items():
            if number > known.generation:
                # Of another text, or made by a command that was killed before it noted that.
                self._end(view.name, number, topic)
        number = max([known.generation, *topics]) + 1
        made = made_generation(self._settings, view, number)
        self._topic.write([noted_identity(view, number), (coming_key(view.name), made.to_json())])
        crash_point("generation_noted")
        return made

    def _build(self, view: PlannedView, known: KnownView, coming: KnownView) -> None:
        of_known = f"generation {known.generation}, which its runner keeps meanwhile"
        self._tell(f"{view.name}: generation {coming.generation} is built beside {of_known}")
        with opened_keeper(self._settings, view, coming, self._watch(view.name)) as runner:
            goal: Fence | None = None
            while goal is None or not runner.prepared or runner.reached.fence < goal:
                turn = runner.turn()
                if goal is None and runner.prepared:
                    # Once: the log goes on meanwhile, and so does who publishes it.
                    goal = _newest(self._settings)
                held = "; ".join(runner.reached.held.values())
                self._say(view.name, held or f"has the log up to {Lsn(runner.reached.fence.lsn)}")
                if turn.idle:
                    self._clock.sleep(_IDLE_S)
        crash_point("generation_built")

    def _publish(self, view: PlannedView, coming: KnownView) -> None:
        self._tell(f"{view.name}: generation {coming.generation} takes the place of those before it")
        try:
            with opened_keeper(self._settings, view, coming) as runner:
                self._until_level(view.name, runner)
        except ActiveError as kept:
            # Started anew meanwhile, by the changed text: that one publishes it.
            self._tell(f"{view.name}: {kept.message}, and publishes it")
            self._until_claimed(coming)
        crash_point("generation_published")

    def _until_level(self, name: str, runner: ViewRunner) -> None:
        count = 0
        # A claim says that all is out. It does not come while a document is parked.
        while not runner.claimed.lsn:
            turn = runner.turn()
            count += turn.documents
            reached = runner.reached
            if turn.idle:
                waiting, parked = runner.sizes()
                if parked and not waiting and reached.sweep is None and reached.fence >= reached.published:
                    self._tell(f"{name}: {parked:,} documents are parked, and its LSN waits for them")
                    break
                if reached.fence < reached.published:
                    self._mark_at_times()
                held = "; ".join(reached.held.values())
                self._say(name, held or f"waits for an LSN above {Lsn(reached.published.lsn)}")
                self._clock.sleep(_IDLE_S)
            else:
                self._say(name, f"{count:,} documents published")
        self._tell(f"{name}: {count:,} documents published by the text of now")

    def _until_claimed(self, coming: KnownView) -> None:
        until_s = self._clock.monotonic() + _CLAIM_S
        while not _is_shown(known_views(self._settings).progress.get(coming.view)):
            if self._clock.monotonic() >= until_s:
                self._tell(f"{coming.view}: its runner has not published all of it yet: cdc status says why")
                return
            self._mark_at_times()
            self._say(coming.view, "waits for its runner")
            self._clock.sleep(_MARK_S)

    def _mark_at_times(self) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._marked_s >= _MARK_S:
            self._marked_s = now_s
            self._mark()

    def _tidy(self, coming: KnownView) -> None:
        """End the generations before this one. The topic of the last one stays until there is another: a sink may not
        have looked yet."""
        name, topics = coming.view, generation_topics(self._settings, coming.view)
        earlier = [number for number in topics if number < coming.generation]
        for number in earlier[:-1]:
            self._end(name, number, topics[number])
        for number in earlier[-1:]:
            for said in end_state(self._settings, name, number):
                self._tell(said)
            self._tell(f"{name}: topic {topics[number]} stays until the next rebuild, or cdc view drop {name} --former")
        crash_point("generation_tidied")
        if known_views(self._settings).coming.get(name) == coming:
            self._topic.write([(coming_key(name), None)])

    def _end(self, name: str, generation: int, topic: str) -> None:
        for said in end_generation(self._settings, name, generation, topic):
            self._tell(said)

    def _watch(self, name: str) -> Callable[[int, int], None]:
        return lambda done, total: self._say(name, f"{done:,} of {total:,} records read")

    def _say(self, name: str, what: str) -> None:
        """At most every few seconds."""
        now_s = self._clock.monotonic()
        if now_s - self._told_s >= _TELL_S:
            self._told_s = now_s
            self._tell(f"{name}: {what}")


def _is_shown(progress: Progress | None) -> bool:
    """Whether a view has claimed an LSN: 0 stands for one that is held before that."""
    return progress is not None and progress.lsn > 0


def _newest(settings: Settings) -> Fence:
    newest = newest_progress(settings)
    return BEFORE_ALL if newest is None else fence_of(newest)
