"""The generation in use of a SQL warehouse kept for a rollback while its sink commits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import orjson
import psycopg
from psycopg.conninfo import conninfo_to_dict

from cdc.record.progress import Watermark
from sinks.contract.kinds import open_generations, spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.conftest import postgres_url
from tests.contract.stores import rows
from tests.contract.topics import Shapes, Topic, at, batch, column, shape
from tests.waiting import wait_until

TABLES = tuple(shape(column("id", "int8", key=1), column("status", "text"), table=name) for name in ("a", "b"))
WAITING = "select count(*) from pg_locks where not granted and relation = 'public_b'::regclass"


def mark(offset: int) -> Watermark:
    return Watermark(epoch=1, lsn=offset, offsets={table.topic: {0: offset} for table in TABLES})


def test_h545_what_is_kept_claims_no_more_than_it_has(database: str) -> None:
    """A transaction of the sink ends between the copies of two tables: the first one lacks it."""
    spec = spec_for("sql", prefix="shop", options={"url": postgres_url(conninfo_to_dict(database))})

    def put(status: str) -> None:
        changes = [Topic(table).upsert({"id": 1, "status": status}, at(offset)) for table in TABLES]
        sink.sink.apply(batch(*changes), Shapes(*TABLES))
        sink.commit(mark(offset))

    with closing(open_sink(spec)) as sink, closing(open_generations(spec)) as generations:
        offset = 5
        put("old")
        with (
            psycopg.connect(database) as held,
            psycopg.connect(database, autocommit=True) as look,
            ThreadPoolExecutor(1) as thread,
        ):
            held.execute("lock table public_b in access exclusive mode")
            keeping = thread.submit(generations.keep, 1, TABLES)
            wait_until(lambda: look.execute(WAITING).fetchone() == (1,), 30)
            held.execute("update public_a set status = 'new'")
            held.execute("update public_b set status = 'new'")
            held.execute(
                "update _cdc_watermark set value = %s where name = 'shop:watermark'", [mark(6).to_json().decode()]
            )
            held.commit()
            keeping.result()
        generations.switch(1, TABLES)
    with closing(open_sink(spec)) as back:
        found = back.watermarks.read()
        shown = [orjson.loads(rows(back, table)["1"].row or b"{}")["status"] for table in TABLES]
    assert found is not None
    assert found.lsn == 5 or shown == ["new", "new"], (found.lsn, shown)
