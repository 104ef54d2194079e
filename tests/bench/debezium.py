"""Drain, snapshot and latency of the native capture beside Debezium on Kafka Connect, counted at the topic.

The same tables, the same WAL and the same encoding for all three: ``cdc run``, Debezium by its defaults, and
Debezium tuned (larger batches and queues, an idempotent producer with five requests in flight that waits and
batches, two snapshot threads). None embeds schemas. Every side drains slots of its own made before the first row,
three times, in alternating order, after one drain that warms the worker's JVM up and is not counted; its heap is 1
to 2 GB. A rate is taken from the moment the topic holds a twentieth of the records until it holds all, so that
nobody's start counts. Medians are compared, and Debezium's best drain is named. CPU is the whole process's over
that time, the JVM's own threads included; memory its peak, for the one worker so far.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from threading import Thread
from typing import NamedTuple

import psycopg
import requests
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.errors import CdcError
from cdc.settings.model import DebeziumSettings, Settings
from cdc.wiring.pipeline import build_snapshot
from connectors.debezium.connector import Connector
from connectors.debezium.databases import named_tables
from connectors.debezium.topics import prepare_topics
from connectors.kafka.admin import TopicAdmin
from snapshot.source.ports import NoReport
from tests.bench import capture, latency, snapshot
from tests.bench.setting import RUNS, Bench, Pipeline, Running, cpu_of, peak_of, spread
from tests.waiting import wait_until

TUNED = {
    "max.batch.size": "20480",
    "max.queue.size": "81920",
    "poll.interval.ms": "10",
    "snapshot.max.threads": "2",
    "producer.override.linger.ms": "20",
    "producer.override.batch.size": "524288",
    "producer.override.buffer.memory": "67108864",
    "producer.override.enable.idempotence": "true",
    "producer.override.acks": "all",
    "producer.override.max.in.flight.requests.per.connection": "5",
}
LATENCY_TUNED = TUNED | {"producer.override.linger.ms": "0"}
_TWENTIETH = 20
_RATE, _SECONDS, _WARM = 500, 20, 1000


class Rate(NamedTuple):
    """Changes per second, CPU in us per change, peak in MB."""

    per_s: float
    cpu_us: float
    peak_mb: float

    def __str__(self) -> str:
        return f"{self.per_s:,.0f}/s, {self.cpu_us:.1f} us CPU each, peak {self.peak_mb:.0f} MB"


def bench(bench: Bench) -> None:
    with ExitStack() as stack:
        source = Source(bench, stack)
        drain(bench, source)
        copy(bench, source)
        delay(bench, source)


class Source:
    """A database, a role that Debezium logs in as, and the worker."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self.dsn = stack.enter_context(bench.database())
        self.session = stack.enter_context(psycopg.connect(self.dsn, autocommit=True))
        self.stack = stack
        self.bench = bench
        self.url = bench.stack.ensure("kafka", "connect")["connect"]["url"]
        self.worker = worker_pid(self.url)
        self._role, password = f"r{secrets.token_hex(4)}", secrets.token_hex(8)
        self._secret = bench.folder / f"{self._role}.properties"
        self._secret.write_text(f"password={password}\n", encoding="utf-8")
        made = sql.SQL("create role {} login superuser password {}")
        self.session.execute(made.format(sql.Identifier(self._role), sql.Literal(password)))
        stack.callback(self._drop_role)

    def pipeline(self, table: str) -> Pipeline:
        return self.stack.enter_context(self.bench.pipeline(self.dsn, [f"public.{table}"]))

    @contextmanager
    def connector(
        self, table: str, options: Mapping[str, str], *, mode: str = "initial"
    ) -> Iterator[tuple[Connector, Settings]]:
        """A connector on that table, not deployed yet; removed afterwards."""
        base = self.pipeline(table).settings
        place = conninfo_to_dict(self.dsn)
        own = base.source.model_copy(
            update={
                "kind": "debezium",
                "dsn": make_conninfo(host=place["host"], port=place["port"], dbname=place["dbname"], user=self._role),
            }
        )
        debezium = DebeziumSettings(
            url=self.url,
            database_password=f"${{file:{self._secret}:password}}",
            schemas=False,
            snapshot_mode=mode,
            options=dict(options),
        )
        settings = base.model_copy(update={"source": own, "debezium": debezium})
        made = Connector(settings)
        try:
            yield made, settings
        finally:
            with suppress(CdcError):
                made.delete()

    def slot(self, settings: Settings) -> int:
        """A slot for a connector; where it begins."""
        row = self.session.execute(
            "select lsn - '0/0' from pg_create_logical_replication_slot(%s, 'pgoutput')", [settings.slot]
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _drop_role(self) -> None:
        self.session.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [self._role])
        for statement in ("reassign owned by {} to current_user", "drop owned by {}", "drop role {}"):
            self.session.execute(sql.SQL(statement).format(sql.Identifier(self._role)))


def drain(bench: Bench, source: Source) -> None:
    """Three slots, then the changes, then each slot drained into its topic."""
    inserts, updates, deletes = (bench.rows(full) for full in (500_000, 400_000, 100_000))
    changes, records = inserts + updates + deletes, inserts + updates + 2 * deletes
    source.session.execute(capture.TABLE)
    with ExitStack() as stack:
        # The first round warms up: the worker's compiler has seen every path then.
        rounds = [_round(source, stack) for _ in range(RUNS + 1)]
        capture.write_changes(source.session, inserts, updates, deletes)
        found: dict[str, list[Rate]] = {}
        for number, sides in enumerate(rounds):
            for name, begin in sides if number % 2 == 0 else reversed(sides):
                with begin() as (settings, cpu, peak):
                    rate = drained(settings, "orders", records, changes, cpu, peak)
                bench.say(f"drain{' (warming up)' if number == 0 else ''}, {name}: {rate}")
                if number:
                    found.setdefault(name, []).append(rate)
    for name, rates in found.items():
        bench.say(
            f"drain, {name}: {spread([r.per_s for r in rates])} changes/s, "
            f"{spread([r.cpu_us for r in rates], 1)} us CPU each"
        )
    best = max((rate, name) for name, rates in found.items() if name != NATIVE for rate in rates)
    bench.say(f"drain, Debezium's best: {best[1]}, {best[0]}")
    middle = {name: Rate(*(median(values) for values in zip(*rates, strict=True))) for name, rates in found.items()}
    ratios(bench, "drain", middle)


NATIVE = "native"
Side = tuple[str, Callable[[], AbstractContextManager[tuple[Settings, Callable[[], float], Callable[[], float]]]]]


def _round(source: Source, stack: ExitStack) -> list[Side]:
    """A slot for each side, from here on, and what begins to drain it."""
    native = source.pipeline("orders")
    native.cdc("init")
    native.cdc("snapshot", "--none")
    sides: list[Side] = [(NATIVE, partial(_native, native))]
    for name, options in (("defaults", {}), ("tuned", TUNED)):
        connector, settings = stack.enter_context(source.connector("orders", options, mode="no_data"))
        publish(source, settings)
        sides.append((name, partial(_debezium, source, connector, settings, source.slot(settings))))
    return sides


@contextmanager
def _native(pipeline: Pipeline) -> Iterator[tuple[Settings, Callable[[], float], Callable[[], float]]]:
    with pipeline.running("run") as running:
        yield pipeline.settings, *of(running)


def place_stopped(connector: Connector, lsn: int) -> None:
    """Create the connector so that its first start reads from ``lsn`` on, and takes no snapshot.

    No record begins at an LSN that is not aligned, so the search for the place to go on finds nothing there and
    begins with the first transaction that committed later.
    """
    connector.client.create_stopped(connector.name, connector.wanted())
    offset = {"lsn": lsn - 1, "lsn_proc": lsn - 1, "lsn_commit": lsn, "txId": 0, "ts_usec": time.time_ns() // 1000}
    body = {"offsets": [{"partition": {"server": connector.wanted()["topic.prefix"]}, "offset": offset}]}
    answer = requests.patch(f"{connector.client.url}/connectors/{connector.name}/offsets", json=body, timeout=30)
    answer.raise_for_status()


@contextmanager
def _debezium(
    source: Source, connector: Connector, settings: Settings, begin: int
) -> Iterator[tuple[Settings, Callable[[], float], Callable[[], float]]]:
    place_stopped(connector, begin)
    connector.client.resume(connector.name)
    try:
        yield settings, *of_worker(source.worker)
    finally:
        connector.stop()


def copy(bench: Bench, source: Source) -> None:
    """The rows of one table, by each."""
    rows = bench.rows(1_000_000)
    source.session.execute("drop table orders")
    source.session.execute(snapshot.TABLE)
    source.session.execute(snapshot.INSERT, [rows])
    source.session.execute("vacuum analyze orders")
    source.session.execute("alter table orders replica identity full")
    native = source.pipeline("orders")
    native.cdc("init")
    summary = build_snapshot(native.settings, NoReport(), workers=snapshot.WORKERS).run()
    found = {"native": summary.rows_per_s}
    bench.say(f"snapshot, cdc snapshot: {summary.rows_per_s:,.0f} rows/s")
    for name, options in (("defaults", {}), ("tuned", TUNED)):
        with source.connector("orders", options) as (connector, settings):
            publish(source, settings)
            connector.deploy()
            rate = drained(settings, "orders", rows, rows, *of_worker(source.worker))
            found[name] = rate.per_s
            bench.say(f"snapshot, Debezium, {name}: {rate}")
    for name in ("defaults", "tuned"):
        bench.say(f"snapshot: cdc / Debezium, {name}: {found['native'] / found[name]:.2f}")


def delay(bench: Bench, source: Source) -> None:
    """From commit to topic at 500 transactions per second."""
    count = int(_RATE * max(6.0, _SECONDS * bench.scale))
    source.session.execute("create table ticks (id bigint primary key, sent_us bigint not null)")
    native = source.pipeline("ticks")
    native.cdc("init")
    native.cdc("snapshot", "--none")
    with native.running("run") as running:
        wait_until(lambda: running.said("streaming"), 60, "cdc run to stream")
        told(bench, "cdc run", native.settings, count, source)
    for name, options in (("defaults", {}), ("tuned", LATENCY_TUNED)):
        source.session.execute("truncate ticks")
        with source.connector("ticks", options, mode="no_data") as (connector, settings):
            publish(source, settings)
            place_stopped(connector, source.slot(settings))
            connector.resume()
            told(bench, f"Debezium, {name}", settings, count, source)


def told(bench: Bench, name: str, settings: Settings, count: int, source: Source) -> None:
    writer = Thread(target=latency.write_ticks, args=(source.session, count), daemon=True)
    writer.start()
    delays_ms = latency.arrivals(settings, count)[_WARM:]
    writer.join()
    bench.say(
        f"latency, {name}: p50 {latency.share(delays_ms, 0.5):.1f} ms, p99 {latency.share(delays_ms, 0.99):.1f} ms"
    )


def drained(
    settings: Settings, table: str, records: int, changes: int, cpu: Callable[[], float], peak: Callable[[], float]
) -> Rate:
    """Wait for the topic to fill; the rate over all but its first twentieth."""
    admin, topic = TopicAdmin(settings.log), f"{settings.name}.public.{table}"

    def held() -> int:
        if not admin.describe([topic]):
            return 0
        return sum(admin.end_offsets({topic: settings.log.partitions})[topic].values())

    wait_until(lambda: held() >= records // _TWENTIETH, 120, f"the first records in {topic}")
    first, start, cpu_s = held(), time.perf_counter(), cpu()
    wait_until(lambda: held() >= records, 400, lambda: f"{held()} of {records} records in {topic}")
    wall, share = time.perf_counter() - start, (records - first) / records
    done = changes * share
    return Rate(done / wall, (cpu() - cpu_s) / done * 1e6, peak())


def ratios(bench: Bench, what: str, found: Mapping[str, Rate]) -> None:
    native = found["native"]
    for name in ("defaults", "tuned"):
        other = found[name]
        bench.say(
            f"{what}: cdc / Debezium, {name}: rate {native.per_s / other.per_s:.2f}, "
            f"CPU {native.cpu_us / other.cpu_us:.2f}, memory {native.peak_mb / other.peak_mb:.2f}"
        )


def publish(source: Source, settings: Settings) -> None:
    """The publication is made before the slot, and the topics as the native capture has them."""
    table = settings.source.tables[0].partition(".")[2]
    made = sql.SQL("create publication {} for table {}")
    source.session.execute(made.format(sql.Identifier(settings.publication), sql.Identifier(table)))
    prepare_topics(settings, named_tables(settings))


def of(running: Running) -> tuple[Callable[[], float], Callable[[], float]]:
    return running.cpu_s, running.peak_mb


def of_worker(pid: int) -> tuple[Callable[[], float], Callable[[], float]]:
    return lambda: cpu_of(pid), lambda: peak_of(pid)


def worker_pid(url: str) -> int:
    """The process of Kafka Connect that listens there, by its properties file."""
    port = url.rpartition(":")[2]
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"org.apache.kafka.connect.cli.ConnectDistributed" in words:
                properties = Path(words[-2].decode()).read_text(encoding="utf-8")
                if f":{port}\n" in properties:
                    return int(folder.name)
    raise AssertionError(f"no worker of {url}")
