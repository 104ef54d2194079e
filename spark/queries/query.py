"""A streaming query: the care that starts a run from where its store is, and the next one when that ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cdc.process.errors import CdcError, Retry
from cdc.record.position import Lsn
from cdc.record.progress import Offsets
from cdc.settings.secret_reference import RefusedLogin
from sinks.contract.port import CannotCarry
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.table_places import SchemaBook
from spark.queries.micro_batch import MicroBatch, SlicePace, shares
from spark.queries.query_run import Engine, Run
from spark.queries.task_reports import TaskReport
from spark.queries.tasks import NARROW, Mode, Task, run_on_executors, warm_up
from spark.session.failures import Halted, QueryFailed, SparkLost, mendable, read_failure, unexpected
from spark.stores.apply import Outcome, Rules
from spark.stores.store_thread import Store, StoreMoved
from spark.stores.watermark import Claim

log = logging.getLogger(__name__)

_FIRST_REST_S, _LONGEST_REST_S = 0.5, 30.0
_UNKNOWN_FAILURES = 3
_SMALLEST_BATCH, _SMALLER = 1_000, 4
_APPLY: Mode = "apply"
_COMPACT: Mode = "compact"
_MOST_MERGED = 512 * 1024
"""Records of a batch whose rows all come to the driver."""


class Query:
    """A store's own query: :meth:`tend` starts it, and starts it again where that can help."""

    def __init__(self, store: Store, spec: SinkSpec, engine: Engine) -> None:
        self.store = store
        self._spec = spec
        self._engine = engine
        most = engine.kafka.max_offsets
        self._most_records = most if spec.parallel else min(most, _MOST_MERGED)
        self._warm = False
        self._pace = SlicePace()
        self._run: Run | None = None
        self._beginning: Future[Offsets] | None = None
        self._rest_until_s = 0.0
        self._begun = False
        self._login = RefusedLogin(engine.clock)
        self._starts = 0
        self._failures = self._unknown = 0
        self.refusal: CdcError | None = None
        """Why its very first start failed, when it did and none has succeeded since."""
        self.failure: CdcError | None = None
        """An error that no further start can cure: from then on it stands still, and the other stores go on."""

    @property
    def running(self) -> bool:
        """Whether a run of the query goes on."""
        return self._run is not None and self._run.active

    def tend(self) -> None:
        """One look. Call it a few times a second. An error that no further start can cure is then its
        :attr:`failure`."""
        if self.failure is not None:
            return
        if self._run is not None:
            self._look_after(self._run)
        elif self._beginning is not None:
            self._go_on(self._beginning)
        elif self._engine.clock.monotonic() >= self._rest_until_s:
            self.store.halt.clear()
            # The first time a store that is away is heard of at once, later it is waited for.
            begin = self.store.submit if self._begun else self.store.attempt
            self._begun = True
            self._beginning = begin(self.store.begin)

    def ask(self) -> None:
        """Wait for the store no longer, and begin nothing more."""
        self.store.halt.set()
        if self._run is not None:
            self._run.ask()

    def halt(self) -> None:
        """End between slices. The store stays open."""
        self.ask()
        run, self._run, self._beginning = self._run, None, None
        if run is not None:
            run.halt()

    def conclude(self) -> None:
        """:meth:`halt`, with no look behind it: an error since the last one that no start can cure is heeded here."""
        run, beginning = self._run, self._beginning
        self.halt()
        self.heed(self.store.fault or (run.fault if run is not None else None))
        met = beginning.exception() if beginning is not None and beginning.done() else None
        self.heed(met if isinstance(met, CdcError) else None)

    def heed(self, fault: CdcError | None) -> None:
        """Have an error that no start can cure be the :attr:`failure`. Others are met again by the next application."""
        told_to_end = isinstance(fault, Halted)
        if self.failure is None and fault is not None and not told_to_end and not _curable(fault):
            self.again(fault)

    def rested(self, since_s: float) -> bool:
        """Whether the next batch may begin, where the last one did at ``since_s``. A store that fills, or is behind by
        more than one batch, has no rest."""
        # First: behind each batch of every store, and the other questions look at all its partitions.
        if not self._spec.every_s or self.store.fault is not None:
            return True
        if not self.store.caught_up or self.store.behind() > self._most_records:
            return True
        return self._engine.clock.monotonic() - since_s >= self._spec.every_s

    def _go_on(self, beginning: Future[Offsets]) -> None:
        if not beginning.done():
            return
        self._beginning = None
        kafka = self._engine.kafka._replace(max_offsets=self._most_records)
        engine = replace(self._engine, kafka=kafka)
        if not self._warm and self.store.backlog > engine.driver_rows:
            self._warm = True
            spec = self._spec if self._spec.parallel else None
            # Beside the first batch, which needs the same: a store that does not answer a task holds nobody up here.
            warm = partial(warm_up, engine.session, kafka.reading, spec, engine.slots)
            threading.Thread(target=warm, name=f"warm-{self.store.name}", daemon=True).start()
        try:
            # Tasks log in with it.
            self._spec = self._spec.renewed()
            self._run = Run(self.store.name, engine, beginning.result(), self._deliver, self.rested)
        except CdcError as failure:
            if self._starts == 0:
                self.refusal = failure
            self.again(failure)
            return
        except PySparkException as failure:
            self.again(read_failure(self.store.name, str(failure), self._engine.log_file))
            return
        except Py4JError:
            raise  # the caller watches the JVM
        except Exception as failure:
            self.again(unexpected(self.store.name, failure))
            return
        self._starts += 1
        self.refusal = None
        if self._starts > 1:
            self._engine.metrics.sink(self.store.name).restarts += 1
        lsn = str(Lsn(self.store.lsn))
        log.info("sink_started", extra={"sink": self.store.name, "lsn": lsn, "behind": self.store.behind()})

    def _look_after(self, run: Run) -> None:
        fault = self.store.fault
        if fault is None and run.active:
            return
        self._run = None
        run.halt()
        if run.batches:
            self._failures = self._unknown = 0
            self._login.over()
        self.again(fault or run.failure())

    def again(self, failure: CdcError) -> None:
        """Rest, longer each time, and start anew, or stand still, when no start can cure it."""
        self._failures += 1
        # Of these alone: a store may have been away for a night before.
        self._unknown += isinstance(failure, QueryFailed)
        if self._unknown > _UNKNOWN_FAILURES or not (_curable(failure) or self._login.may_pass(failure)):
            self.failure = failure
            self._engine.metrics.failed(self.store.name, failure)
            said = {"sink": self.store.name, "reason": failure.message, "hint": failure.hint, "exit": int(failure.exit)}
            log.error("sink_stopped", extra=said)
            return
        if mendable(failure) or failure.retry is Retry.SECRET or isinstance(failure, QueryFailed):
            # The store may answer all the while: a task's fault, or Spark's, is reported here.
            self._engine.metrics.sink(self.store.name).failing = failure
        self._most_records = batch_after(failure, self._most_records)
        rest_s = min(_LONGEST_REST_S, _FIRST_REST_S * 2 ** (self._failures - 1))
        self._rest_until_s = self._engine.clock.monotonic() + (0 if isinstance(failure, StoreMoved) else rest_s)
        log.warning("sink_starts_again", extra={"sink": self.store.name, "reason": failure.message})

    def _deliver(self, batch: MicroBatch) -> None:
        self.store.run(partial(self.store.require_same, {span.topic for span in batch.spans}))
        if self._engine.fits_driver(batch):
            self._from_driver(batch)
        else:
            self._from_executors(batch)

    def _from_driver(self, batch: MicroBatch) -> None:
        started_s = self._engine.clock.monotonic()
        for piece, records in batch.slices(self._engine.slice_bytes):
            at = Claim(piece.offsets, self._engine.clock.monotonic())
            outcome = self.store.run(partial(self.store.settle, records, at))
            started_s = tell(self._engine, self.store, outcome, started_s)

    def _from_executors(self, batch: MicroBatch) -> None:
        parallel = self._spec.parallel
        spec, mode = (self._spec, _APPLY) if parallel else (None, _COMPACT)
        started_s = self._engine.clock.monotonic()
        for piece, report in collected(self._engine, batch, self.store, spec, mode, self._pace):
            at = Claim(piece.offsets, self._engine.clock.monotonic())
            if parallel:
                outcome = self.store.run(partial(self.store.conclude, report.outcome, at))
            else:
                history = partial(history_of, self._engine, piece)
                settle = partial(self.store.settle_events, report.winners, report.outcome, at, history)
                outcome = self.store.run(settle)
            done_s = tell(self._engine, self.store, outcome, started_s)
            self._pace.note(outcome.applied.applied, done_s - started_s)
            started_s = done_s


def _curable(failure: CdcError) -> bool:
    return mendable(failure) or failure.retry is Retry.NOW


def batch_after(failure: CdcError, most_records: int) -> int:
    """How many records the next run's batches hold: fewer after an unknown failure, it may have been their bytes."""
    if not isinstance(failure, QueryFailed | SparkLost):
        return most_records
    return min(most_records, max(_SMALLEST_BATCH, most_records // _SMALLER))


def collected(
    engine: Engine, batch: MicroBatch, store: Store, spec: SinkSpec | None, mode: Mode, pace: SlicePace
) -> Iterator[tuple[MicroBatch, TaskReport]]:
    """Run a batch on the executors, a slice at a time: what was read in each, and what the tasks report of it.
    ``pace``: of the store."""
    rest: MicroBatch | None = batch
    while rest is not None:
        piece, report = collect(engine, rest, store, spec, mode, pace)
        yield piece, report
        rest = rest.behind(piece)


def collect(
    engine: Engine, batch: MicroBatch, store: Store, spec: SinkSpec | None, mode: Mode, pace: SlicePace
) -> tuple[MicroBatch, TaskReport]:
    """Run a batch's next slice on the executors until nothing is missing for it.

    The driver provides what a first attempt lacked (a schema version, a floor to be set alone), and the same slice runs
    again: it may be repeated any number of times.
    """
    before = Outcome()
    floors_set = False
    # The driver gets the tasks' records in one piece: all tasks together read no more than one would alone.
    most_bytes = engine.slice_bytes if mode == "apply" else max(1, engine.slice_bytes // engine.slots)
    most_rows = pace.rows(engine.slots)
    piece, whole = batch, False
    translate = batch.translate
    translation = translate.for_tasks(batch.spans) if translate is not None else None
    while True:
        task = Task(
            spec=spec,
            # Records that are only reduced here are judged again where they are applied.
            rules=store.rules_of_now() if mode == "apply" else shapes_of(store.rules),
            mode=mode,
            floors_set=floors_set,
            slice_bytes=most_bytes,
            narrow_bytes=NARROW * most_bytes,
            most_rows=most_rows,
            translation=translation,
            whole=whole,
        )
        try:
            report = on_executors(engine, piece, task)
        except CannotCarry as refusal:
            store.run(partial(store.hold, refusal))
            continue
        # Where a slice ends is up to chance: what was seen of it counts for the same stretches alone.
        piece, whole = piece.upto(report.reached), True
        needs, floors = report.needs, report.floors
        if translate is not None and report.told.undecided:
            needs = translate.decide(report.told)
            translation = translate.for_tasks(piece.spans)
        elif not needs and not floors.num_rows:
            return piece._replace(translation=translation), replace(report, outcome=before + report.outcome)
        if needs:
            store.run(partial(store.learn, needs))
        elif floors.num_rows:
            before += store.run(partial(store.set_floors, floors))
            floors_set = True


def shapes_of(rules: Rules) -> Rules:
    """The rules about shapes and about others' records, without parked keys and held tables."""
    return Rules(book=rules.book, absent=rules.absent, reach=rules.reach)


def history_of(engine: Engine, batch: MicroBatch, keys: Mapping[str, list[bytes]]) -> pa.Table:
    """All events that a batch has of some keys, read again."""
    rules = Rules(book=SchemaBook())
    task = Task(spec=None, rules=rules, mode="compact", only=keys, translation=batch.translation)
    return on_executors(engine, batch, task).winners


def on_executors(engine: Engine, batch: MicroBatch, task: Task) -> TaskReport:
    """Run a task on a batch, in as many shares as there are slots."""
    return run_on_executors(engine.session, engine.kafka.reading, shares(batch.spans, engine.slots), task)


def tell(engine: Engine, store: Store, outcome: Outcome, started_s: float) -> float:
    """A slice's line in the log, and its time in the metrics. Returns the time."""
    now_s = engine.clock.monotonic()
    took_s = now_s - started_s
    engine.metrics.sink(store.name).batches.add(took_s)
    log.info(
        "batch_applied",
        extra={
            "sink": store.name,
            "records": outcome.records,
            "rows": outcome.applied.applied,
            "deletes": outcome.applied.deleted,
            "stale": outcome.applied.stale,
            "dead": len(outcome.letters),
            "took_s": round(took_s, 3),
            "behind": store.behind(),
            "lsn": str(Lsn(store.lsn)),
        },
    )
    return now_s
