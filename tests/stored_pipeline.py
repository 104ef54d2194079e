"""A pipeline's stored set, as an earlier commit left it, put onto the servers of a test: see fixtures/upgrade."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psycopg
import redis as redis_client
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from cdc.clock import SYSTEM_CLOCK
from cdc.lsn import Lsn
from tests.waiting import wait_until

FOLDER = Path(__file__).parent / "fixtures" / "upgrade"
COMMITS = sorted(path.stem for path in FOLDER.glob("*.json"))
DATABASE = "harbour"
SERVER_NAMES = """
select (select system_identifier from pg_control_system())::text as system,
       (select oid from pg_database where datname = current_database())::text as database_oid,
       'orders'::regclass::oid::text as table_oid,
       (select p.oid || '/' || p.xmin || ' ' || r.oid || '/' || r.xmin
          from pg_publication p join pg_publication_rel r on r.prpubid = p.oid) as entries
"""
"""By which a stored set names its Postgres."""


@dataclass(frozen=True)
class Place:
    """Where it is put: the servers of a test, and a name that no other pipeline has."""

    name: str
    kafka: str
    redis: str
    folder: Path


class StoredPipeline:
    """``commit``: whose code wrote it. Its places are filled in step by step, as each server says what it is."""

    def __init__(self, commit: str, place: Place) -> None:
        self._text = (FOLDER / f"{commit}.json").read_text(encoding="utf-8")
        self._place = place
        known = {"@name@": place.name, "@kafka@": place.kafka, "@redis@": place.redis, "@folder@": str(place.folder)}
        self._fill(known)

    @property
    def left(self) -> dict[str, Any]:
        """As it is filled in by now."""
        found: dict[str, Any] = orjson.loads(self._text)
        return found

    def put_source(self, admin_dsn: str) -> str:
        """Make the database, its slot and the rows that were there when the pipeline was left. Its dsn.

        The server is new: its WAL is behind all positions of the stored set, and is led past them, so that the slot
        stands before and the server behind what the log holds, as they were left.
        """
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        dsn = psycopg.conninfo.make_conninfo(admin_dsn, dbname=DATABASE)
        names = {"slot": f"cdc_{self._place.name}"}
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("create table orders (id int primary key, status text, total numeric(12,2))")
            publication = sql.SQL("create publication {} for table orders").format(sql.Identifier(names["slot"]))
            session.execute(publication)
            rows = orjson.dumps(self.left["rows"]).decode()
            session.execute("insert into orders select * from jsonb_populate_recordset(null::orders, %s)", [rows])
            session.execute("select pg_create_logical_replication_slot(%(slot)s, 'pgoutput')", names)
            lsn = self._newest_lsn()
            assert _written(session) < lsn, "the server's WAL is beyond the stored set"
            wait_until(lambda: _led_on(session) > lsn, 30)
            [found] = session.execute(SERVER_NAMES.encode()).fetchall()
        self._fill(dict(zip(("@system@", "@database_oid@", "@table_oid@", "@entries@"), found, strict=True)))
        self._fill({"@dsn@": dsn.replace("\\", "\\\\").replace('"', '\\"')})
        return dsn

    def put_topics(self) -> None:
        """Make each topic with its own settings, then write each record to its partition, in its order."""
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": self._place.kafka}
        admin, topics = AdminClient(servers), self.left["topics"]
        made = [NewTopic(one["name"], one["partitions"], 1, config=one["configs"]) for one in topics]
        for done in admin.create_topics(made).values():
            done.result(60)
        names = [one["name"] for one in topics]
        about = {name: done.result(60) for name, done in admin.describe_topics(TopicCollection(names)).items()}
        ids = {f"@id of {name}@": str(found.topic_id) for name, found in about.items()}
        self._fill(ids | {"@cluster@": str(admin.describe_cluster().result(60).cluster_id)})
        producer = Producer(servers | {"enable.idempotence": True})
        for topic in self.left["topics"]:
            for record in topic["records"]:
                headers: Any = [(name, text.encode()) for name, text in record["headers"]]
                value = record["value"]
                producer.produce(
                    topic["name"],
                    None if value is None else value.encode(),
                    record["key"].encode(),
                    record["partition"],
                    headers=headers,
                )
        assert producer.flush(60) == 0

    def put_store(self) -> None:
        """The cache's rows and notes. Its watermark was level with the log a moment ago, as at any upgrade."""
        made_ms, now_ms = self.left["made_ms"], SYSTEM_CLOCK.now_ns() // 1_000_000
        with redis_client.Redis.from_url(self._place.redis) as client:
            for key, kept in self.left["cache"].items():
                fields = {name: _moved(text, now_ms - made_ms) for name, text in kept["value"].items()}
                client.hset(key, mapping=fields)
                if kept["lives_ms"] > 0:
                    client.pexpire(key, kept["lives_ms"])

    def put_checkpoint(self) -> Path:
        """Spark's folder of the last run, byte for byte but for the topics' names."""
        folder = self._place.folder / "checkpoints"
        for name, text in self.left["checkpoint"].items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    def watermark(self) -> dict[str, Any]:
        """As the earlier commit wrote it."""
        found: dict[str, Any] = orjson.loads(self.left["cache"][f"{self._place.name}:_watermark"]["value"]["watermark"])
        return found

    def behind(self) -> int:
        """Records of the table that the store lacks."""
        [table] = [one for one in self.left["topics"] if one["name"].endswith(".orders")]
        lacking: int = len(table["records"]) - sum(self.watermark()["offsets"][table["name"]].values())
        return lacking

    def _newest_lsn(self) -> int:
        [progress] = [one for one in self.left["topics"] if one["name"].endswith(".progress")]
        return int(orjson.loads(progress["records"][-1]["value"])["lsn"])

    def _fill(self, known: dict[str, str]) -> None:
        for place, text in known.items():
            self._text = self._text.replace(place, text)


def _written(session: psycopg.Connection[Any]) -> int:
    [[lsn]] = session.execute("select pg_current_wal_insert_lsn()::text").fetchall()
    return Lsn.parse(lsn)


def _led_on(session: psycopg.Connection[Any]) -> int:
    """A segment further."""
    session.execute("select pg_logical_emit_message(false, 'further', '')")
    session.execute("select pg_switch_wal()")
    return _written(session)


def _moved(text: str, by_ms: int) -> str:
    """The time at which a watermark was level, as much later as the fixture is older than this test (H60)."""
    if not text.startswith('{"epoch"'):
        return text
    note = orjson.loads(text)
    if note.get("level_ms"):
        note["level_ms"] += by_ms
    return orjson.dumps(note).decode()
