"""One run of a streaming query, from where its store is, and the engine that all queries of an application run on."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, SinkError
from cdc.record.progress import Offsets
from spark.figures.query_listener import run_name
from spark.figures.sink_metrics import Metrics
from spark.queries.micro_batch import MicroBatch
from spark.queries.tasks import SLICE_BYTES
from spark.records.debezium_records import Translation
from spark.records.source import KafkaInput, kafka_frame
from spark.session.executor_fitness import slots_of
from spark.session.failures import GRACE_S, Halted, read_failure, unexpected

log = logging.getLogger(__name__)

_NUMBERS = count(1)
_BATCH_END_S = GRACE_S + 5.0
_LOOK_S = 0.2  # how often a rest is looked at, for a log that grew meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The engine that all queries of an application run on. ``driver_rows``: batches up to this size are applied in the
    driver. ``slice_bytes``: of a batch's records, what is read and applied at once, by the driver or by one task.
    ``translation``: makes what turns the records of one run into ours."""

    session: SparkSession
    kafka: KafkaInput
    folder: Folder
    metrics: Metrics
    driver_rows: int
    slice_bytes: int = SLICE_BYTES
    log_file: str = "spark.log"
    translation: Callable[[], Translation] | None = None
    clock: Clock = SYSTEM_CLOCK

    @property
    def slots(self) -> int:
        """Tasks that run at once now. A cluster may have more executors than for the batch before."""
        return slots_of(self.session)

    def fits_driver(self, batch: MicroBatch) -> bool:
        """Whether a batch is small enough to be applied in the driver."""
        return batch.most_rows <= self.driver_rows


def _at_once(_since_s: float) -> bool:
    return True


class Run:
    """One run of a streaming query. ``deliver`` gets each batch in turn and returns when it may be forgotten.
    ``rested``: whether the next batch may begin, by when the last one did. Asked again and again until it may."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        starts: Offsets,
        deliver: Callable[[MicroBatch], None],
        rested: Callable[[float], bool] = _at_once,
    ) -> None:
        self._name = name
        self._engine = engine
        self._deliver = deliver
        self._rested = rested
        self._from: Offsets = starts
        self._lock = threading.Lock()
        self._halting = threading.Event()
        self._raised: BaseException | None = None
        self.batches = 0
        self._translate = engine.translation() if engine.translation is not None else None
        self._reader = engine.kafka.reading.open()
        self._place = engine.folder.fresh(name)
        engine.session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        frame = kafka_frame(engine.session, engine.kafka, name, starts)
        writer = frame.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", self._place)
        self._streaming: StreamingQuery = writer.queryName(run_name(name, next(_NUMBERS))).start()

    @property
    def active(self) -> bool:
        """Whether Spark still runs the query."""
        return self._streaming.isActive

    def failure(self) -> CdcError:
        """Why it ended."""
        raised = self._raised
        if isinstance(raised, CdcError):
            return raised
        # A job's error is told by the one or by the other, by the way in which its rows come.
        if raised is not None and not isinstance(raised, PySparkException | Py4JJavaError):
            return unexpected(self._name, raised)
        said = self._streaming.exception()
        return read_failure(self._name, str(said or raised or ""), self._engine.log_file)

    @property
    def fault(self) -> CdcError | None:
        """The error that its last batch met. None where it met none, or one that is not ours."""
        return self._raised if isinstance(self._raised, CdcError) else None

    def ask(self) -> None:
        """Begin no other slice and no other batch."""
        self._halting.set()

    def halt(self) -> None:
        """End it between two slices: the one in hand is waited for, the next one is not begun. One that does not end in
        time is given up, with the Spark job that it may be waiting for, and comes again."""
        self.ask()
        if self._lock.acquire(timeout=_BATCH_END_S):
            # Released before stop(): a batch that is about to begin has to find out and leave.
            self._lock.release()
        try:
            self._streaming.stop()
        except PySparkException as failure:
            log.warning("query_left_behind", extra={"sink": self._name, "reason": type(failure).__name__})
        else:
            self._reader.close()

    def _on_batch(self, _frame: DataFrame, number: int) -> None:
        began_s = self._engine.clock.monotonic()
        self._take(number)
        # Behind the batch, not before it: Spark plans the next one afterwards, with all that came meanwhile. And
        # without the lock, so that an end has nothing to wait for.
        while not self._rested(began_s) and not self._halting.wait(_LOOK_S):
            pass

    def _take(self, number: int) -> None:
        with self._lock:
            if self._halting.is_set():
                raise Halted("the query was told to end")
            try:
                ends = {**self._from, **batch_offsets(self._engine.folder, self._place, number)}
                self._deliver(self._batch(ends))
                self._from = ends
                self.batches += 1
            except BaseException as failure:
                self._raised = failure
                raise

    def _batch(self, ends: Offsets) -> MicroBatch:
        return MicroBatch(
            starts=self._from,
            ends=ends,
            reader=self._reader,
            halting=self._halting,
            translate=self._translate,
        )


# Spark's own memory of a query: a folder per run, and what it says of a batch's offsets.
#
# The store's watermark is the truth. A checkpoint serves one run of a query, which starts from the watermark. So a
# store that was restored, flushed or dropped gets what it lacks, no batch is skipped by its number, and a checkpoint
# that was lost or copied from elsewhere changes nothing.


class Folder(Protocol):
    """Where checkpoints stand: a local folder, or one that Hadoop's file systems reach."""

    def fresh(self, query: str) -> str:
        """A new, empty place for one run of a query. Those of its earlier runs are removed."""

    def read(self, place: str, name: str) -> str:
        """A small file below ``place``. FileNotFoundError when there is none."""


def open_folder(root: str, session: SparkSession) -> Folder:
    """``root``: a path, or a URL of a file system that Spark knows."""
    scheme = urlsplit(root).scheme
    if scheme in ("", "file"):
        return LocalFolder(Path(urlsplit(root).path if scheme else root).absolute())
    return HadoopFolder(root, session)


class LocalFolder:
    """Checkpoints on this machine. Implements :class:`Folder`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def fresh(self, query: str) -> str:
        home = self._root / query
        try:
            earlier = sorted(int(p.name) for p in home.iterdir() if p.name.isdigit()) if home.is_dir() else []
            place = home / str(earlier[-1] + 1 if earlier else 1)
            place.mkdir(parents=True)
            for number in earlier:
                shutil.rmtree(home / str(number), ignore_errors=True)
        except OSError as error:
            raise ConfigError(
                f"the checkpoint folder {home} cannot be written: {error.strerror}", hint="see [spark] checkpoint"
            ) from None
        return str(place)

    def read(self, place: str, name: str) -> str:
        return (Path(place) / name).read_text(encoding="utf-8")


class HadoopFolder:
    """Checkpoints on a shared or remote file system, reached through the driver's JVM. Implements :class:`Folder`."""

    def __init__(self, root: str, session: SparkSession) -> None:
        self._root = root.rstrip("/")
        self._session = session

    def fresh(self, query: str) -> str:
        home = f"{self._root}/{query}"
        system, path = self._open(home)
        system.mkdirs(path)
        names = [status.getPath().getName() for status in system.listStatus(path)]
        earlier = sorted(int(name) for name in names if name.isdigit())
        place = f"{home}/{earlier[-1] + 1 if earlier else 1}"
        for number in earlier:
            old_system, old = self._open(f"{home}/{number}")
            old_system.delete(old, True)
        return place

    def read(self, place: str, name: str) -> str:
        system, path = self._open(f"{place}/{name}")
        if not system.exists(path):
            raise FileNotFoundError(f"{place}/{name}")
        stream = system.open(path)
        try:
            return str(self._jvm().org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _open(self, place: str) -> tuple[Any, Any]:
        path = self._jvm().org.apache.hadoop.fs.Path(place)
        configuration = self._session.sparkContext._jsc.hadoopConfiguration()
        return path.getFileSystem(configuration), path

    def _jvm(self) -> Any:
        return self._session.sparkContext._jvm


def batch_offsets(folder: Folder, place: str, batch_id: int) -> Offsets:
    """The end of a planned batch, as Spark wrote it down before the batch began.

    Raises SinkError when the checkpoint has lost it. It is never counted from records, because compaction and
    transactions leave gaps.
    """
    name = f"offsets/{batch_id}"
    try:
        text = folder.read(place, name)
    except FileNotFoundError:
        raise SinkError(f"the checkpoint {place} has lost {name}", hint="it is made anew at the next start") from None
    return parse_offsets(text)


def parse_offsets(text: str) -> Offsets:
    """An entry of Spark's offset log: a version line, a line of metadata, a line per source, ``-`` for one that has
    said nothing yet. Each topic is of one source.

    Raises ValueError for a text without the version line.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":0}\\n{"shop.public.a":{"0":7}}\\n-\\n{"shop.public.b":{"0":8}}')
    {'shop.public.a': {0: 7}, 'shop.public.b': {0: 8}}
    """
    version, _metadata, *sources = text.strip().split("\n")
    if not version.startswith("v"):
        raise ValueError(f"not an offset log: {version!r}")
    found = [orjson.loads(source) for source in sources if source != "-"]
    return {topic: {int(p): n for p, n in parts.items()} for one in found for topic, parts in one.items()}
