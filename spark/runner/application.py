"""The application: one Spark session, a query per sink (or one for all), and an orderly end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, Retry
from cdc.record.position import Lsn
from cdc.record.progress import Offsets, Watermark
from cdc.settings.secret_reference import patiently
from cdc.wire.dead_letter import DeadLetters, LetterFeed
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec
from spark.figures.query_listener import listening
from spark.figures.sink_metrics import Metrics
from spark.queries.log_watch import LogWatch, Measuring
from spark.queries.query import Query
from spark.queries.query_run import Engine, open_folder
from spark.queries.tasks import SLICE_BYTES
from spark.records.debezium_records import Translation
from spark.records.foreign_records import judged
from spark.records.ports import HeadReader, LogQuestions, ProgressFeed, SinkTopics
from spark.records.source import KafkaInput
from spark.runner.wait_page import WaitPage
from spark.session.executor_fitness import ExecutorWatch, look_at
from spark.session.executor_probe import Probe, modules_of
from spark.session.spark_session import (
    LOG_FILE,
    SessionSpec,
    end_session,
    own_python,
    require_jvm,
    start_session,
    submitted,
    telling_of_jvm,
)
from spark.session.stop import SinkStop, ended_in_time
from spark.stores.store_thread import Store, Surroundings
from spark.stores.view_claims import LIMIT_S, ViewClaims
from spark.stores.watermark import Claim, LogView

log = logging.getLogger(__name__)

_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkApplication:
    """Everything an application needs, put together by :mod:`cdc.wiring`.

    ``specs``: sink -> its store. ``connect`` opens one in the driver. ``open_feed``: the progress topic,
    ``open_letters``: the dead letters'. ``http_address``: for ``/metrics``, empty for none. ``open_heads``: reads
    the first records that stores lack, None for figures without their age. ``package``: makes the
    zip of our packages for executors elsewhere. ``open_views``: the views' progress, and ``view_limit_s`` as
    :class:`spark.stores.view_claims.ViewClaims` has it. ``translation``: for topics that are not ours, or were not
    always. ``stop_together``: a store that cannot go on ends the
    others.
    """

    session: SessionSpec
    specs: Mapping[str, SinkSpec]
    connect: Callable[[SinkSpec], OpenSink]
    facts: LogQuestions
    dead: DeadLetters
    open_feed: Callable[[], ProgressFeed]
    open_letters: Callable[[], LetterFeed]
    kafka: KafkaInput
    checkpoint: str
    driver_rows: int
    stop_together: bool = False
    slice_bytes: int = SLICE_BYTES
    http_address: str = ""
    open_heads: Callable[[], HeadReader] | None = None
    open_views: Callable[[], ProgressFeed | None] | None = None
    view_limit_s: float = LIMIT_S
    package: Callable[[], Path] | None = None
    translation: Callable[[], Translation] | None = None
    clock: Clock = SYSTEM_CLOCK


def run(
    application: SinkApplication, stop: SinkStop, *, until_caught_up: bool = False, session: SparkSession | None = None
) -> None:
    """Feed the stores until asked to stop, or until each shows what was in the topics at its start.

    A store that no restart of its query can help stands still, and the others go on. The error that stopped it is
    raised at the end, or at once when none is left. SparkLost when Spark itself ended. ``session``: one that is used
    and left running, for tests.
    """
    _refuse_early(application, until_caught_up)
    # Before the stores look where the topics end: the rows that it speaks of lie below.
    newest = application.facts.newest() if until_caught_up else None
    with ExitStack() as at_end:
        own = session
        if own is None:
            own = start_session(application.session)
            at_end.enter_context(ended_in_time(own, stop))
            at_end.callback(end_session, own)
        at_end.enter_context(stop.on_signals())
        running = _RunningApplication(application, own, at_end, stop)
        running.go(stop, LastClaims(running.view, newest, application.clock) if until_caught_up else None)


def _refuse_early(application: SinkApplication, until_caught_up: bool) -> None:
    """Raise the errors that would end the application anyway, before Spark takes its seconds to start."""
    refusals = []
    for name, spec in application.specs.items():
        try:
            patiently(partial(application.facts.topics, name), application.clock)
            patiently(partial(application.connect, spec), application.clock).close()
        except CdcError as refusal:
            refusals.append(refusal)
    _raise_refusal(refusals, len(application.specs), until_caught_up or application.stop_together)


def _raise_refusal(refusals: list[CdcError], store_count: int, any_of_them: bool) -> None:
    """A store that cannot be fed at the start is left alone, unless there is none that can be fed, now or soon."""
    lasting = [refusal for refusal in refusals if refusal.retry is not Retry.NOW]
    for refusal in refusals:
        if any_of_them or len(lasting) == store_count:
            raise refusal


class _RunningApplication:
    """An application while it runs."""

    def __init__(self, application: SinkApplication, session: SparkSession, at_end: ExitStack, stop: SinkStop) -> None:
        self._application = application
        self._stop = stop
        metrics = Metrics(clock=application.clock, pipeline=application.session.name)
        # Another writer's statements about the topics do not judge single records.
        views = ViewClaims(application.clock, application.view_limit_s)
        view = self.view = LogView(judges=application.translation is None, views=views)
        around = Surroundings(
            facts=application.facts,
            dead=application.dead,
            view=view,
            metrics=metrics,
            clock=application.clock,
        )
        # The submitter's word, where there is one, and not that of the settings.
        master = str(session.sparkContext.master)
        here = master.startswith("local")
        if application.package is not None and not (here and own_python()):
            session.sparkContext.addPyFile(str(application.package()))
        self._engine = Engine(
            session=session,
            kafka=application.kafka,
            folder=open_folder(application.checkpoint, session),
            metrics=metrics,
            driver_rows=application.driver_rows,
            slice_bytes=application.slice_bytes,
            log_file=str(application.session.log_folder / LOG_FILE),
            translation=application.translation,
            clock=application.clock,
        )
        if application.http_address:
            waits = WaitPage(application.specs, application.connect)
            at_end.callback(waits.close)
            server = metrics.serve(application.http_address, {"/wait": waits.answer})
            if server is not None:
                at_end.callback(server.close)
        at_end.enter_context(listening(session, metrics.queries, application.clock))
        self._stores = {name: self._store(name, spec, around) for name, spec in application.specs.items()}
        for store in self._stores.values():
            at_end.callback(self._let_go, store)
        self._watch = LogWatch(
            list(self._stores.values()),
            application.facts,
            application.open_feed(),
            view,
            clock=application.clock,
            letters=application.open_letters(),
            measuring=Measuring(application.open_heads() if application.open_heads else None, metrics.looked),
        )
        self._executors = None if here else ExecutorWatch(master, application.clock)
        self._probe = Probe(session, modules_of(application.specs.values()))
        self._watch.follow_views(application.open_views() if application.open_views else None)
        at_end.callback(self._watch.close)

    def go(self, stop: SinkStop, claims: LastClaims | None) -> None:
        """Until the stop is asked for or, with ``claims``, until the stores have caught up and owe none."""
        specs = self._application.specs
        queries = [Query(store, specs[name], self._engine) for name, store in self._stores.items()]
        self._watch.start()
        try:
            self._tend(stop, queries, claims)
        finally:
            stop.ask("the application ends")
            with suppress(Py4JError, OSError):
                self._end(queries)
        for query in queries:
            if query.failure is not None:
                raise query.failure

    def _tend(self, stop: SinkStop, queries: list[Query], claims: LastClaims | None) -> None:
        """Until the stop is asked for or, with ``claims``, until the stores have caught up and owe none."""
        session, log_file = self._engine.session, self._engine.log_file
        while not stop.wait(_LOOK_S):
            self._engine.metrics.tick()
            require_jvm(session, log_file)
            with telling_of_jvm(session, log_file):
                for one in queries:
                    one.tend()
                self._look_at_executors()
            self._raise_failures(queries, claims is not None)
            going = [query.store for query in queries if query.failure is None]
            if claims is not None and all(store.caught_up for store in going) and not claims.owed(going):
                self._tell_of_end(going, claims)
                return
        log.info("stopping", extra={"reason": stop.reason})

    def _tell_of_end(self, stores: list[Store], claims: LastClaims) -> None:
        for name, (epoch, lsn) in claims.lacking(stores).items():
            log.warning("claim_left", extra={"sink": name, "lsn": str(Lsn(lsn)), "epoch": epoch})
        log.info("caught_up", extra={"sinks": ",".join(store.name for store in stores)})

    def _look_at_executors(self) -> None:
        if self._executors is None or not self._executors.due():
            return
        seen = look_at(self._engine.session)
        self._engine.metrics.lacking = self._executors.note(seen)
        self._probe.note(seen.executors)
        if self._probe.failure is not None:
            raise self._probe.failure

    def _end(self, queries: list[Query]) -> None:
        if submitted():
            # Spark's log is the user's stderr there, and has nothing to add to how a query ends.
            self._engine.session.sparkContext.setLogLevel("OFF")
        for one in queries:
            # All at once: the time that each may take for its batch in hand is the same time.
            one.ask()
        for one in queries:
            with suppress(CdcError, PySparkException):
                one.conclude()

    def _let_go(self, store: Store) -> None:
        if not store.end():
            self._stop.left_behind = True

    def _raise_failures(self, queries: list[Query], until_caught_up: bool) -> None:
        found = [query.refusal for query in queries if query.refusal is not None]
        # A login that is refused is tried for a while: see Query.again.
        refusals = [refusal for refusal in found if refusal.retry is not Retry.SECRET]
        _raise_refusal(refusals, len(queries), until_caught_up)
        failures = [query.failure for query in queries if query.failure is not None]
        if failures and (self._application.stop_together or len(failures) == len(queries)):
            raise failures[0]
        if self._watch.failure is not None:
            raise self._watch.failure

    def _store(self, name: str, spec: SinkSpec, around: Surroundings) -> Store:
        connect, wait_for = self._application.connect, around.view.wait_for
        return Store(name, lambda: judged(connect(replace(spec, leads=True)), wait_for), around)


CLAIM_S = 3.0
"""How long stores that have caught up may take to claim the LSN that goes with it."""
HEAR_S = 30.0
"""How long progress that is in the log may take to be heard, and a store or the broker to do their part
of a claim that it proves. It comes within a second, unless one of them is slow or away."""

Reached = tuple[int, int]
"""An epoch and an LSN in it. They compare."""


class Claiming(Protocol):
    """A store, as far as its claim goes."""

    @property
    def name(self) -> str:
        """Its sink's."""

    @property
    def offsets(self) -> Offsets:
        """The offsets that it shows."""

    @property
    def shown(self) -> Watermark | None:
        """All that it claims. None of an empty store."""

    @property
    def topics(self) -> SinkTopics:
        """The topics that it reads."""


class LastClaims:
    """Whether stores that have caught up may still claim more. ``newest``: as the log had it at the start. None where
    nothing says it. The rows below it were in the topics then, so that a store which has caught up has them."""

    def __init__(self, view: LogView, newest: Reached | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._view = view
        self._newest = newest
        self._clock = clock
        self._since_s: float | None = None
        self._heard_s: float | None = None

    def owed(self, stores: Collection[Claiming]) -> bool:
        """Whether the end should wait for a claim of these stores, all of which have caught up. Not for ever: the log
        may say nothing more, and a claim may depend on what a capture that is down would write."""
        now_s = self._clock.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if self._heard_s is None and self._newest is not None and not self._view.has_heard(self._newest):
            return now_s - self._since_s < HEAR_S
        self._heard_s = now_s if self._heard_s is None else self._heard_s
        if any(self._due(store, now_s, self._since_s) for store in stores):
            return now_s - self._heard_s < HEAR_S
        return now_s - self._heard_s < CLAIM_S and any(self._owes(store, now_s) for store in stores)

    def lacking(self, stores: Collection[Claiming]) -> dict[str, Reached]:
        """The stores that claim less than the log had at the start, each with what they claim."""
        return {store.name: _claimed(store.shown) for store in stores if self._lacks(store)}

    def _lacks(self, store: Claiming) -> bool:
        return self._newest is not None and _claimed(store.shown) < self._newest

    def _due(self, store: Claiming, now_s: float, since_s: float) -> bool:
        """Whether a claim of what the log had at the start is on its way: the store has only to write what is proven,
        or the broker to say where the topics end."""
        if not self._lacks(store):
            return False
        # It claims less than the newest of the start: what is proven above its claim is of use.
        proven = _claimed(self._view.claim(None, Claim(store.offsets, now_s), store.topics))
        return proven > _claimed(store.shown) or self._view.seen_s < since_s

    def _owes(self, store: Claiming, now_s: float) -> bool:
        shown = store.shown
        # It has the rows of a table that it held, and says so at its next look.
        behind = shown is not None and not shown.held.keys().isdisjoint(store.topics.ids)
        return behind or self._view.owes(shown, Claim(store.offsets, now_s), store.topics)


def _claimed(mark: Watermark | None) -> Reached:
    return (mark.epoch, mark.lsn) if mark is not None else (1, 0)
