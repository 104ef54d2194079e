"""A store that follows a pipeline's topics whoever writes them, and writers that never let the source rest."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import psycopg

from cdc.record.position import Position
from cdc.wire.debezium.reading import DebeziumChange, DebeziumReader
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import read_range
from tests.integration.debezium.conftest import Pipeline

Row = dict[str, Any]


class Follower:
    """Newest wins by position, the later offset among equals: what every store does, from the topic's beginning."""

    def __init__(self, pipeline: Pipeline, table: str) -> None:
        self._pipeline = pipeline
        self._table = table

    def rows(self) -> dict[Any, Row]:
        """Living rows by their id."""
        return self._fold()[0]

    def last_words(self) -> dict[Any, Row]:
        """The same by what stands last of each key: what compaction keeps, whatever the positions say (H75)."""
        return self._fold()[1]

    def _fold(self) -> tuple[dict[Any, Row], dict[Any, Row]]:
        settings = self._pipeline.settings()
        topic = f"{settings.name}.{self._table}"
        store: dict[bytes, tuple[Position, Row | None]] = {}
        last: dict[bytes, Row | None] = {}
        reader = DebeziumReader()
        for partition in range(TopicAdmin(settings.log).describe([topic])[topic].partitions):
            for message in read_range(settings.log, topic, partition):
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert value is None or isinstance(value, bytes)
                headers: Any = dict(message.headers() or ())
                if "pos" in headers:
                    change = _native(key, value, headers)
                else:
                    found = reader.read(topic, message.offset() or 0, key, value)
                    assert isinstance(found, DebeziumChange), found
                    change = (found.key, found.pos, _after(found.value))
                key, position, row = change
                last[key] = row
                if position >= store.get(key, (position, None))[0]:
                    store[key] = (position, row)
        living = {row["id"]: row for _, row in store.values() if row is not None}
        return living, {row["id"]: row for row in last.values() if row is not None}


def _native(key: bytes, value: bytes | None, headers: dict[str, bytes]) -> tuple[bytes, Position, Row | None]:
    return key, Position.parse(headers["pos"].decode()), _after(value)


def _after(value: bytes | None) -> Row | None:
    document = orjson.loads(value) if value is not None else None
    if document is not None and document.keys() == {"schema", "payload"}:
        document = document["payload"]
    after: Row | None = document["after"] if document is not None else None
    return after


@contextmanager
def restless(dsn: str, *, threads: int = 3, keys: int = 40) -> Iterator[None]:
    """Transactions of several changes on few keys, interleaved, all the time; table ``a``."""
    stop = threading.Event()
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(dsn) as session:
            while not stop.is_set():
                with suppress(psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation), session.transaction():
                    for _ in range(chance.randint(1, 6)):
                        _change(session, chance, keys)
                        stop.wait(0.002)
                stop.wait(0.005)

    def guarded(seed: int) -> None:
        try:
            work(seed)
        except BaseException as fault:
            faults.append(fault)

    running = [threading.Thread(target=guarded, args=(seed,), daemon=True) for seed in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join(20)
    assert faults == []


def _change(session: psycopg.Connection[Any], chance: random.Random, keys: int) -> None:
    key, value = chance.randint(1, keys), f"{chance.random():.6f}"
    match chance.randint(0, 9):
        case 0:
            session.execute("delete from a where id = %s", [key])
        case 1:
            session.execute("update a set id = %s where id = %s", [chance.randint(1, keys), key])
        case 2 | 3 | 4:
            session.execute(
                "insert into a values (%s, %s, %s) on conflict (id) do update set v = excluded.v",
                [key, value, chance.randint(0, 99)],
            )
        case _:
            session.execute("update a set v = %s, n = n + 1 where id = %s", [value, key])


def source_rows(pipeline: Pipeline) -> dict[int, Row]:
    rows = pipeline.session.execute("select id, v, n::text from a").fetchall()
    return {key: {"id": key, "v": value, "n": number} for key, value, number in rows}
