"""Runners that are killed, over histories of capture's records: each claim shows what Postgres says of those rows."""

from __future__ import annotations

import random

import orjson
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import SourceSettings
from cdc.views.view_plan import ViewPlan, planned
from cdc.views.view_records import view_shape
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.server.connections import Connection, connect
from tests.examples import examples
from tests.unit.cdc.views.view_histories import SHAPES, History, Rows, Runner, interfere, shown
from tests.views_against import lines

_TABLES = """create table orders (id int primary key, customer_id int);
create table lines (id int primary key, order_id int, qty int);
create table customers (id int primary key, name int)"""
VALUES = (
    "(select max(l.qty) from lines l where l.order_id = o.id)",
    "(select json_agg(json_build_object('id', l.id, 'qty', l.qty) order by l.id) from lines l where l.order_id = o.id)",
    "exists (select 1 from lines l where l.order_id = o.id and l.qty > o.customer_id)",
    "(select count(*) from orders x where x.customer_id = o.customer_id and x.id <= o.id)",
    "(select array_agg(x.id order by x.id) from orders x join lines l on l.order_id = x.id where x.customer_id = o.id)",
    "(select max(x.id) from orders x where x.customer_id = o.customer_id and x.id <= o.id and not exists "
    "(select 1 from orders y where y.customer_id = x.customer_id and y.id < x.id and y.id >= x.id - 1))",
    "(select sum(l.qty) from orders x join lines l on l.order_id = x.id where x.customer_id = o.customer_id)",
    "(select l.qty from lines l where l.order_id = o.id order by l.qty desc nulls last, l.id limit 1)",
)
FIGURES = (
    "count(*)",
    "sum(l.qty)",
    "max(l.qty)",
    "min(l.qty) filter (where o.customer_id > 1)",
    "count(distinct o.customer_id)",
    "avg(l.qty)",
    "bool_or(l.qty > 2)",
    "(array_agg(o.customer_id order by l.qty desc, l.id))[1]",
    "json_agg(l.qty order by l.id)",
)
GROUPS = ("c.name", "l.qty", "o.customer_id", "coalesce(c.name, 0) + 1")


def text_of(chance: random.Random) -> str:
    """A view of documents, or of groups."""
    join = chance.choice(["join", "left join"])
    if chance.random() < 0.5:
        values = ", ".join(f"{v} as v{n}" for n, v in enumerate(chance.sample(VALUES, 3)))
        where = chance.choice(["", "", " where o.customer_id <> 2", " where c.name is distinct from 1"])
        return f"select o.id, c.name, {values} from orders o {join} customers c on c.id = o.customer_id{where}"
    by = chance.sample(GROUPS, chance.choice([0, 1, 1, 2]))
    figures = ", ".join(f"{f} as f{n}" for n, f in enumerate(chance.sample(FIGURES, 3)))
    keys = "".join(f"{key} as k{n}, " for n, key in enumerate(by))
    group = f" group by {', '.join(str(n + 1) for n in range(len(by)))}" if by else ""
    having = chance.choice(["", " having count(*) > 1"]) if by else ""
    tables = f"lines l {join} orders o on o.id = l.order_id {join} customers c on c.id = o.customer_id"
    return f"select {keys}{figures} from {tables}{group}{having}"


def _expected(conn: Connection, plan: ViewPlan, rows: Rows) -> dict[bytes, object]:
    """What Postgres says of these rows, by the key on the wire."""
    conn.execute(b"truncate orders, lines, customers")
    for name, of_table in rows.items():
        for row in of_table.values():
            marks = ", ".join(["%s"] * len(row))
            conn.execute(f"insert into {name} values ({marks})".encode(), tuple(row.values()))
    encoder = compile_table(view_shape("v", plan, "t"), name="t", database="d", masks=NO_MASKS)
    found = dict(encoder.snapshot_line(line) for line in lines(conn, plan.sql))
    names = [name for _, name in plan.key]
    read = [orjson.loads(row) for row in found.values()]
    return {orjson.dumps({name: row[name] for name in names}): row for row in read}


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_v1_v9_killed_runners_claim_what_postgres_says(
    seed: int, database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    sql = text_of(chance)
    plan = planned(sql, SHAPES)
    with psycopg.connect(database, autocommit=True) as made:
        made.execute(b"drop table if exists orders, lines, customers")
        made.execute(_TABLES.encode())
    conn = connect(SourceSettings(dsn=database, tables=["public.*"]), autocommit=True)
    conn.execute(b"set search_path to public")
    history = History(chance)
    runner = Runner(sql, history, tmp_path_factory.mktemp("view"), bulk=chance.choice([3, 1000]))
    try:
        for _ in range(10):
            for _ in range(chance.randint(0, 4)):
                history.transaction()
            if chance.random() < 0.1:
                history.truncate()
            history.progress()
            runner.kill_chance = 0.2
            for _ in range(chance.randint(0, 5)):
                runner.turn()
            interfere(runner, chance)
            history.clock.advance(chance.choice([1, 20, 70]))
            if chance.random() < 0.3:
                history.compact()
            if chance.random() < 0.5:
                claim = runner.until_level()
                assert shown(runner.topic) == _expected(conn, plan, history.at(claim.lsn)), sql
    finally:
        runner.end()
        conn.close()
