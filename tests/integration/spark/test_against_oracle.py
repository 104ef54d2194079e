"""What four stores show after all ways of reading in turn, against plain Python over the topics themselves."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import orjson
import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable

from cdc.record.position import Position
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog, envelope

Opened = Callable[[Settings, str], OpenSink]
TABLES = ("a", "b", "c")
PARTITIONS = 4
KEYS = 60
WAYS: tuple[dict[str, Any], ...] = (
    {"driver_batch_rows": 0, "slice_bytes": 40_000},
    {},
    {"driver_batch_rows": 0, "max_offsets_per_trigger": 300, "slice_bytes": 20_000},
    {"driver_batch_rows": 40, "slice_bytes": 20_000},
    {"driver_batch_rows": 100, "max_offsets_per_trigger": 150, "slice_bytes": 30_000},
)


class Chaos:
    """Writes records as nobody should, each with a position."""

    def __init__(self, log: HandMadeLog, seed: int) -> None:
        self._log = log
        self._chance = random.Random(seed)
        base = {"bootstrap.servers": log.bootstrap_servers, "linger.ms": 20}
        self._plain = Producer(base | {"compression.type": "gzip"})
        self._packed = Producer(base | {"compression.type": "zstd"})
        self._bound = Producer({**base, "transactional.id": f"{log.name}-{seed}"})
        self._bound.init_transactions(60)
        self._lsn = 1_000

    def write(self, count: int) -> None:
        for _ in range(count):
            self._some()
        for producer in (self._plain, self._packed):
            assert producer.flush(60) == 0
        self._transaction(abort=self._chance.random() < 0.6)
        self._log.lsn = max(self._log.lsn, self._lsn * 64)

    def _some(self) -> None:
        chance, table = self._chance, self._chance.choice(TABLES)
        key = chance.randrange(KEYS)
        kind = chance.choices(
            ("u", "d", "bare", "late", "equal", "alien", "large", "t"), (60, 12, 6, 10, 6, 3, 2, 0.4)
        )[0]
        producer = chance.choice((self._plain, self._packed))
        self._lsn += 1
        if kind == "t":
            shape = self._log.shapes[table]
            mark = orjson.dumps({"__truncate": str(shape.table)})
            for partition in range(PARTITIONS):
                self._send(
                    producer,
                    table,
                    mark,
                    envelope(shape, "t", None, None, 1),
                    "t",
                    Position(1, self._lsn * 64, 1),
                    partition,
                )
        elif kind == "alien":
            producer.produce(self._log.topic(table), b"not json", b"x%d" % key, chance.randrange(PARTITIONS))
        elif kind == "d":
            self._row(producer, table, key, "d", self._lsn * 64, 1, None)
            self._row(producer, table, key, "d", self._lsn * 64, 2, None, bare=True)
        elif kind == "bare":
            self._row(producer, table, key, "d", self._lsn * 64, 2, None, bare=True)
        elif kind == "late":
            # A row of a chunk, read earlier than what was written since.
            self._row(producer, table, key, "r", max(1, self._lsn - chance.randrange(200)) * 64, 2**32 - 1, "late")
        elif kind == "equal":
            for note in ("first", "second"):
                self._row(producer, table, key, "r", self._lsn * 64, 2**32 - 1, note)
        else:
            size = 300_000 if kind == "large" else chance.randrange(400)
            self._row(producer, table, key, "u", self._lsn * 64, 1, "x" * size)

    def _row(
        self,
        producer: Producer,
        table: str,
        key: int,
        op: str,
        lsn: int,
        seq: int,
        note: str | None,
        *,
        bare: bool = False,
    ) -> None:
        shape = self._log.shapes[table]
        row = {"id": key, "status": f"{lsn}-{seq}-{note}-{self._chance.random()}", "total": "1.00"}
        value = (
            None if bare else envelope(shape, op, row, None, lsn) if op == "d" else envelope(shape, op, None, row, lsn)
        )
        self._send(producer, table, orjson.dumps({"id": key}), value, op, Position(1, lsn, seq), key % PARTITIONS)

    def _send(
        self,
        producer: Producer,
        table: str,
        key: bytes,
        value: bytes | None,
        op: str,
        at: Position,
        partition: int,
    ) -> None:
        headers: Any = [("pos", at.text().encode()), ("op", op.encode()), ("ver", b"1")]
        producer.produce(self._log.topic(table), value, key, partition, headers=headers)
        producer.poll(0)

    def _transaction(self, *, abort: bool) -> None:
        self._bound.begin_transaction()
        for table in TABLES:
            self._lsn += 1
            for key in range(0, KEYS, 7):
                self._row(self._bound, table, key, "u", self._lsn * 64, 1, "bound")
        self._bound.flush(60)
        (self._bound.abort_transaction if abort else self._bound.commit_transaction)(60)


def newest(log: HandMadeLog, table: str) -> dict[str, str]:
    """Key -> status, from the topic alone: of each key the greatest (position, offset), where it lies above the
    floor."""
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap_servers,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(log.topic(table), number, 0) for number in range(PARTITIONS)])
    left, best, floor = PARTITIONS, dict[bytes, tuple[str, int, str, bytes | None]](), ""
    while left:
        # The client's stubs say None for what a record always has.
        message: Any = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            left -= 1
            continue
        headers = dict(message.headers() or [])
        if "pos" not in headers:
            continue
        pos, op = headers["pos"].decode(), headers["op"].decode()
        if op == "t":
            floor = max(floor, pos)
            continue
        found = (pos, message.offset(), op, message.value())
        best[message.key()] = max(best.get(message.key(), ("", -1, "", None)), found, key=lambda one: one[:2])
    consumer.close()
    return {
        str(orjson.loads(key)["id"]): orjson.loads(value)["after"]["status"]
        for key, (pos, _, op, value) in best.items()
        if op != "d" and value is not None and pos > floor
    }


def in_cache(url: str, prefix: str, table: str) -> dict[str, str]:
    client = redis.Redis.from_url(url)
    found = {}
    for key in client.scan_iter(f"{prefix}:public.{table}:*", count=1000):
        row: Any = client.hget(key, "row")
        if row is not None:
            found[key.decode().rpartition(":")[2]] = orjson.loads(row)["status"]
    return found


def in_search(url: str, prefix: str, table: str) -> dict[str, str]:
    body = orjson.dumps({"size": 1000, "query": {"match_all": {}}})
    asked = Request(f"{url}/{prefix}-public.{table}/_search", body, {"Content-Type": "application/json"})
    with urlopen(asked, timeout=60) as answer:
        hits = orjson.loads(answer.read())["hits"]["hits"]
    return {str(hit["_source"]["id"]): hit["_source"]["status"] for hit in hits}


def in_delta(folder: Path, table: str) -> dict[str, str]:
    rows = DeltaTable(str(folder / "public" / table)).to_pyarrow_table().to_pylist()
    return {str(row["id"]): row["status"] for row in rows if not row["_deleted"]}


def in_sqlite(path: Path, table: str) -> dict[str, str]:
    with sqlite3.connect(path) as database:
        names = [one for (one,) in database.execute("select name from sqlite_master where type = 'table'")]
        [own] = [name for name in names if name.endswith(table) and "cdc" not in name]
        return {str(i): s for i, s in database.execute(f'select id, status from "{own}" where not _deleted')}


@pytest.fixture
def three(kafka: str, topic_prefix: str) -> Iterator[HandMadeLog]:
    log = HandMadeLog(topic_prefix, kafka, tables=TABLES, partitions=PARTITIONS)
    log.init()
    yield log


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_all_ways_in_turn_show_the_newest_of_each_key(
    three: HandMadeLog, sinks: Sinks, all_stores: dict[str, Any], tmp_path: Path, opened: Opened, seed: int
) -> None:
    chaos = Chaos(three, seed)
    ways = list(WAYS)
    random.Random(seed).shuffle(ways)
    for way in ways:
        chaos.write(600)
        lsn = three.progress()
        settings = three.settings(all_stores, **way)
        sinks.catch_up(settings)
        for table in TABLES:
            wanted = newest(three, table)
            name = TableName("public", table).table
            assert in_cache(all_stores["cache"]["url"], three.name, name) == wanted, ("cache", table, way)
            assert in_search(all_stores["search"]["url"], all_stores["search"]["prefix"], name) == wanted, (table, way)
            assert in_delta(Path(all_stores["warehouse"]["path"]), name) == wanted, ("warehouse", table, way)
            assert in_sqlite(tmp_path / "reports.db", name) == wanted, ("reports", table, way)
        for store in all_stores:
            mark = opened(settings, store).watermarks.read()
            assert mark is not None and mark.lsn == lsn, (store, way)
