"""The steps of a view's batch on a Spark cluster: a flow is a DataFrame of parcels, and a shuffle brings the parcels of
one target to one task.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from cdc.errors import CdcError, Retry
from sinks.arrow import schema_of
from spark.failures import SparkLost, read_failure
from spark.spark_session import LOG_FILE
from spark.views.exchange import CONTROL, FAULT, Parcel, Step, guarded_step

_SCHEMA = schema_of([("target", pa.int64()), ("tag", pa.int32()), ("payload", pa.binary())])
_BATCH_BYTES = 4 * 1024**2
_TASK_RECORDS = 100_000
"""How many records a task has to do with, about."""
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Each stage moves few columns from Arrow to a shuffle. Compiling Java for it took longer than to run it."""


class SparkExchange:
    """Implements :class:`spark.views.exchange.Exchange`. ``view``: whose batches they are. Raises as it collects."""

    def __init__(self, session: SparkSession, view: str) -> None:
        self._session = session
        self._view = view
        with self._telling():
            self._least = session.sparkContext.defaultParallelism
            for name, value in _INTERPRETED.items():
                session.conf.set(name, value)
        self._tasks = self._least
        self._kept: list[DataFrame] = []

    def expect(self, records: int) -> None:
        """See the protocol."""
        self._tasks = max(self._least, -(-records // _TASK_RECORDS))

    def begin(self, parcels: Sequence[Parcel]) -> DataFrame:
        """See the protocol. Raises as :meth:`collect`."""
        with self._telling():
            return self._session.createDataFrame(_batch(parcels))

    def through(self, flow: DataFrame, step: Step, tags: Sequence[int]) -> DataFrame:
        """See the protocol. Raises as :meth:`collect`."""
        with self._telling():
            chosen = flow.where(F.col("tag").isin(*tags, FAULT)).repartition(self._tasks, "target")
            made = chosen.mapInArrow(partial(_carried, step), from_arrow_schema(_SCHEMA))
            # Each flow is read by several that follow it. The part of a lost executor is made once more.
            self._kept.append(made.persist(StorageLevel.MEMORY_AND_DISK))
            return made

    def joined(self, flows: Sequence[DataFrame], tags: Sequence[int]) -> DataFrame:
        """See the protocol. Raises as :meth:`collect`."""
        with self._telling():
            first, *others = flows
            for other in others:
                first = first.unionAll(other)
            return first.where(F.col("tag").isin(*tags, FAULT))

    def collect(self, flow: DataFrame) -> list[Parcel]:
        """See the protocol. SparkLost and QueryFailed where Spark itself does not go on."""
        with self._telling():
            found = flow.where(F.col("tag").isin(CONTROL, FAULT)).toArrow()
        parcels = list(_parcels(found))
        for one in parcels:
            if one.tag == FAULT:
                raise _fault(one)
        return parcels

    def forget(self) -> None:
        """See the protocol."""
        kept, self._kept = self._kept, []
        self._tasks = self._least
        with suppress(PySparkException, Py4JError, OSError):
            for frame in kept:
                frame.unpersist()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (Py4JError, ConnectionError, EOFError) as failure:
            if isinstance(failure, Py4JJavaError):
                raise self._read(failure) from None
            hint = (
                f"start cdc view run again: the view goes on. Often the kernel ends it for its memory; see {LOG_FILE}"
            )
            raise SparkLost("Spark's JVM is out of reach", hint=hint) from None
        except PySparkException as failure:
            raise self._read(failure) from None

    def _read(self, failure: Exception) -> CdcError:
        """Spark has tried each task four times. The next try is that of the next start."""
        found = read_failure(f"of the view {self._view}", str(failure), LOG_FILE)
        found.retry = Retry.LATER if found.retry is Retry.NOW else found.retry
        return found


def _carried(step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task: its parcels through the step. An error of ours is a parcel, so that the driver can tell it apart.

    One that a task before it has told goes on. Spark carries out a task once more whose executor is lost, within a
    later job, and the driver collects what that job was asked for alone.
    """
    size, waiting, faults = 0, list[Parcel](), list[Parcel]()
    for parcel in chain(_sound(step, _without_faults(batches, faults)), faults):
        waiting.append(parcel)
        size += len(parcel.payload)
        if size >= _BATCH_BYTES:
            yield from _batch(waiting).to_batches()
            size, waiting = 0, []
    yield from _batch(waiting).to_batches()


def _without_faults(batches: Iterator[pa.RecordBatch], faults: list[Parcel]) -> Iterator[Parcel]:
    """The parcels for a step. ``faults``: takes all others."""
    for batch in batches:
        for parcel in _parcels(batch):
            if parcel.tag == FAULT:
                faults.append(parcel)
            else:
                yield parcel


def _sound(step: Step, parcels: Iterator[Parcel]) -> Iterator[Parcel]:
    try:
        yield from guarded_step(step, parcels)
    except CdcError as failure:
        yield _told_fault(failure)


def _told_fault(failure: CdcError) -> Parcel:
    return Parcel(-1, FAULT, pickle.dumps(failure))


def _fault(told: Parcel) -> CdcError:
    failure = pickle.loads(told.payload)
    assert isinstance(failure, CdcError)
    return failure


def _batch(parcels: Sequence[Parcel]) -> pa.Table:
    columns = list(zip(*parcels, strict=True)) if parcels else [(), (), ()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def _parcels(found: pa.Table | pa.RecordBatch) -> Iterator[Parcel]:
    columns = [found.column(name).to_pylist() for name in ("target", "tag", "payload")]
    return map(Parcel, *columns)
