"""``cdc verify --repair`` on every store, with damage done by hand while capture and sinks run under load."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import orjson
import psycopg
import pytest
import redis

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit
from cdc.record.position import Position
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.programs import RunCdc, Spawned
from tests.waiting import wait_until

ROWS = 300
FUTURE = Position(1, 1 << 48, 1)


@pytest.fixture
def stores(redis_url: str, opensearch: str, index_prefix: str, tmp_path: Path) -> dict[str, Any]:
    """Settings of a store of each kind."""
    return {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(tmp_path / "warehouse")},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }


@pytest.fixture
def pipeline(
    database: str, kafka: str, topic_prefix: str, stores: dict[str, Any], tmp_path: Path, run_cdc: RunCdc
) -> Pipeline:
    document = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka, "partitions": 2},
        "capture": {"http_address": ""},
        "sinks": stores,
        "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
    }
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql(
        "create table orders (id int primary key, status text, n int not null default 0)",
        f"insert into orders select i, 'open' from generate_series(1, {ROWS}) i",
    )
    return made


class Load:
    """A session that changes rows all the time, the damaged ones among them."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.changes = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as session:
            while not self._end.is_set():
                self.changes += 1
                number = self.changes % ROWS + 1
                session.execute("update orders set n = n + 1 where id = %s", (number,))
                session.execute("delete from orders where id = %s", (ROWS + 50 + number % 7,))
                session.execute("insert into orders values (%s, 'new')", (ROWS + 50 + number % 7,))
                SYSTEM_CLOCK.sleep(0.01)


def damage(pipeline: Pipeline, extra: str = "900") -> None:
    """In each store: row 1 to 3 lost, row 9001 to 9003 that the source never had, row 4 to 6 with another value, row
    7 to 9 at a position of the future. ``extra``: what the keys that the source never had begin with."""
    name, stores = pipeline.document["name"], pipeline.document["sinks"]
    damage_cache(stores["cache"]["url"], name, extra)
    damage_search(stores["search"]["url"], stores["search"]["prefix"], extra)
    damage_delta(Path(stores["warehouse"]["path"]), extra)
    damage_sql(pipeline.folder / "reports.db", extra)


def damage_cache(url: str, name: str, extra: str) -> None:
    with redis.Redis.from_url(url) as cache:
        for number in (1, 2, 3):
            cache.rename(f"{name}:public.orders:{number}", f"{name}:public.orders:{extra}{number}")
            cache.hset(f"{name}:public.orders:{3 + number}", "row", orjson.dumps({"id": 3 + number, "status": "wrong"}))
            cache.hset(f"{name}:public.orders:{6 + number}", "pos", FUTURE.text())


def damage_search(url: str, prefix: str, extra: str) -> None:
    import opensearchpy  # noqa: PLC0415 - beside its only use

    with closing(opensearchpy.OpenSearch([url])) as client:
        index = f"{prefix}-public.orders-1"
        for number in (1, 2, 3):
            held = client.get(index=index, id=str(number))["_source"]
            client.index(index=index, id=f"{extra}{number}", body=held | {"id": int(f"{extra}{number}")})
            client.delete(index=index, id=str(number))
            client.update(index=index, id=str(3 + number), body={"doc": {"status": "wrong"}})
            ahead = client.get(index=index, id=str(6 + number))["_source"] | {"_pos": FUTURE.text()}
            version = {"version": FUTURE.document_version(), "version_type": "external_gte"}
            client.index(index=index, id=str(6 + number), body=ahead, params=version)
        client.indices.refresh(index=index)


def damage_delta(root: Path, extra: str) -> None:
    place = str(root / "public" / "orders")

    def act(attempts: int = 20) -> None:
        table = deltalake.DeltaTable(place)
        moved = {"_key": f"concat('{extra}', _key)", "id": f"{extra}0 + id"}
        table.update(updates=moved, predicate="_key in ('1', '2', '3')")
        table.update(updates={"status": "'wrong'"}, predicate="_key in ('4', '5', '6')")
        table.update(updates={"_pos": f"'{FUTURE.text()}'"}, predicate="_key in ('7', '8', '9')")

    wait_until(lambda: _done(act), 30)


def _done(act: Any) -> bool:
    """Whether it was done; the sink may commit in between."""
    try:
        act()
    except deltalake.exceptions.CommitFailedError:
        return False
    return True


def damage_sql(file: Path, extra: str) -> None:
    with closing(sqlite3.connect(file, timeout=30)) as database:
        moved = f"_key = '{extra}' || _key, id = {extra}0 + id"
        database.execute(f"update public_orders set {moved} where _key in ('1', '2', '3')")
        database.execute("update public_orders set status = 'wrong' where _key in ('4', '5', '6')")
        database.execute("update public_orders set _pos = ? where _key in ('7', '8', '9')", (FUTURE.text(),))
        database.commit()


@pytest.mark.long
@pytest.mark.slow
def test_h93_h101_every_store_is_repaired_under_load_and_equal(
    pipeline: Pipeline, fed: tuple[Spawned, Spawned]
) -> None:
    with Load(pipeline.dsn) as load:
        equal = pipeline.cdc("verify", "--timeout", "300", timeout_s=300)
        assert equal.returncode == Exit.OK, equal.stderr + equal.stdout
        damage(pipeline)
        refused = pipeline.cdc("verify", "--timeout", "300", timeout_s=300)
        assert_refused(refused, Exit.DIFFERENCE, "--repair")
        assert " 12 ahead" in refused.stderr
        done = pipeline.cdc("verify", "--repair", "--json", "--timeout", "300", timeout_s=400)
        assert done.returncode == Exit.OK, done.stderr + done.stdout
        report = orjson.loads(done.stdout)
        assert (report["differences"], report["undecided"]) == (0, 0)
        assert {one["sink"] for one in report["repaired"]} == set(pipeline.document["sinks"])
        for one in report["repaired"]:
            assert one["refused"] == one["unread"] == []
            assert one["deleted"] >= 3, one
        before = load.changes
        wait_until(lambda: load.changes > before + 50)
    last = pipeline.cdc("verify", "--timeout", "300", timeout_s=300)
    assert last.returncode == Exit.OK, last.stderr + last.stdout
