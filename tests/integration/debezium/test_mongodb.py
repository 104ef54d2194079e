"""MongoDB's documented records in Kafka, by the commands, into real stores: documents, and updates that lack theirs."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer

from cdc.process.errors import Exit
from cdc.settings.model import Settings, load
from connectors.debezium.databases import named_tables
from connectors.debezium.topics import prepare_topics
from connectors.kafka.clients import producer_config
from tests.integration.debezium.test_stores import SINK_S, cached
from tests.programs import RunCdc, Spawn, Spawned
from tests.unit.cdc.wire.debezium.mongodb import ANNE, ANNE_MARIE, CREATED, ID, RENAMED, envelope, key
from tests.waiting import wait_until

ANNES, DELETED, LOST = key("1004"), key('"deleted"'), key('"lost"')
TABLE = "inventory.customers"


@pytest.fixture
def config(kafka: str, topic_prefix: str, redis_url: str, tmp_path: Path) -> Path:
    file = tmp_path / "cdc.toml"
    file.write_text(
        f"""
        name = "{topic_prefix}"
        [source]
        kind = "debezium"
        dsn = "mongodb://127.0.0.1/?replicaSet=rs0"
        tables = ["{TABLE}"]
        [log]
        bootstrap_servers = "{kafka}"
        partitions = 2
        min_compaction_lag = "1h"
        [debezium]
        url = "http://127.0.0.1:1"
        database = "mongodb"
        [sinks.cache]
        kind = "redis"
        url = "{redis_url}"
        [sinks.files]
        kind = "sql"
        url = "sqlite:///{tmp_path}/shop.db"
        [spark]
        master = "local[1]"
        checkpoint = "{tmp_path}/checkpoints"
        http_address = ""
        """,
        encoding="utf-8",
    )
    return file


class Written:
    """A connector's part: records into the collection's topic."""

    def __init__(self, settings: Settings) -> None:
        self._topic = f"{settings.name}.{TABLE}"
        self._producer = Producer(producer_config(settings.log))

    def __call__(self, *records: tuple[bytes, bytes | None]) -> None:
        for name, value in records:
            self._producer.produce(self._topic, value, name)
        assert self._producer.flush(30) == 0


@pytest.mark.slow
@pytest.mark.long
def test_documents_reach_the_stores(
    config: Path, topic_prefix: str, redis_url: str, run_cdc: RunCdc, spawn: Spawn
) -> None:
    settings = load(config)
    prepare_topics(settings, named_tables(settings))
    write = Written(settings)

    def documents() -> dict[str, object]:
        rows = cached(redis_url, topic_prefix, TABLE)
        return {identity: row["document"] for identity, row in rows.items()}

    def shows(sink: Spawned, **expected: object) -> None:
        def same() -> bool:
            assert sink.process.poll() is None, sink.stderr
            assert documents() == {name.removeprefix("_"): held for name, held in expected.items()}
            return True

        wait_until(same, SINK_S, lambda: sink.stderr)

    write(
        (ANNES, envelope("r", after=ANNE, snapshot="true")),
        (key(), envelope("c", after=CREATED)),
        (DELETED, envelope("c", after=ANNE)),
        (ANNES, envelope("u", after=ANNE_MARIE, patch=RENAMED)),
        (LOST, envelope("u", patch=RENAMED)),
        (DELETED, envelope("d")),
        (DELETED, None),
    )
    marie, anne = orjson.loads(ANNE_MARIE), {ID: orjson.loads(CREATED)}
    first = spawn("cdc", "sink", "--config", config)
    shows(first, _1004=marie, **anne)

    def listed() -> bool:
        told = run_cdc("--config", config, "dead", "list", "--json")
        assert told.returncode == Exit.OK, told.stderr
        assert told.stdout.count("change_streams_update_full") == 2, told.stdout
        return True

    wait_until(listed, SINK_S, lambda: first.stderr)
    write((LOST, envelope("r", after=ANNE, snapshot="incremental")), (ANNES, envelope("u", after=ANNE)))
    shows(first, _1004=orjson.loads(ANNE), **anne, lost=orjson.loads(ANNE))
