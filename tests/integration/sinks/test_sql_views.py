"""The view of live rows beside each table of a SQL warehouse, on Postgres and SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from cdc.process.errors import ConfigError, Exit
from cdc.record.progress import Watermark
from cdc.settings.sink_settings import UnreadSink
from sinks.contract.kinds import beside, open_generations, read_section, spec_for
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.contract.conftest import postgres_url
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.fresh import fresh_name

SHAPES = Shapes(ORDERS)


@pytest.fixture(params=["postgres", "sqlite"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkSpec]:
    if request.param == "sqlite":
        yield spec_for("sql", prefix="shop", options={"url": f"sqlite:///{tmp_path}/shop.db"})
    else:
        url = postgres_url(conninfo_to_dict(request.getfixturevalue("database")))
        yield spec_for("sql", prefix="shop", options={"url": url})


def asked(spec: SinkSpec, *statements: str) -> list[tuple[Any, ...]]:
    engine = sa.create_engine(spec.text("url"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        for one in statements:
            answer = connection.exec_driver_sql(one)
        return [tuple(row) for row in answer] if answer.returns_rows else []


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "status": "open", "note": None, **more}


def test_the_manuals_query_shows_live_rows_alone(spec: SinkSpec) -> None:
    sink, topic = open_sink(spec), Topic()
    kept, gone = topic.upsert(order(1), at(1)), topic.upsert(order(2), at(2))
    sink.sink.apply(batch(kept, gone, topic.delete(order(2), at(3))), SHAPES)
    sink.sink.show()
    [query] = [line for line in Path("sinks/README.md").read_text().splitlines() if "public_orders_live" in line]
    assert asked(spec, query) == [(1, "open")]
    inspector = sa.inspect(sa.create_engine(spec.text("url"), poolclass=sa.NullPool))
    assert [one["name"] for one in inspector.get_columns("public_orders_live")] == ["id", "status", "note"]
    sink.close()


def test_a_view_follows_its_tables_columns(spec: SinkSpec) -> None:
    retyped = column("note", "int4")
    one = shape(column("id", "int4", key=1), column("status", "text"), retyped)
    two = shape(column("id", "int4", key=1), column("status", "text"), retyped, column("more", "int4"), version=2)
    three = shape(*two.columns[:2], column("note", "int8"), two.columns[3], version=3)
    sink, row = open_sink(spec), {"id": 1, "status": "open", "note": 7, "more": 8}
    sink.sink.apply(batch(Topic(one).upsert(row, at(1))), Shapes(one))
    sink.sink.show()
    postgres = spec.text("url").startswith("postgresql")
    if postgres:
        asked(spec, "grant select on public_orders_live to public")
    for number, newest in ((2, two), (3, three)):
        sink.sink.apply(batch(Topic(newest).upsert({**row, "id": number}, at(number))), Shapes(one, two, three))
        sink.sink.show()
    assert asked(spec, "select id, note, more from public_orders_live where id > 1 order by id") == [
        (2, 7, 8),
        (3, 7, 8),
    ]
    if postgres:
        assert asked(spec, "select has_table_privilege('public', 'public_orders_live', 'select')") == [(True,)]
    asked(spec, "drop view public_orders_live")
    open_sink(spec).sink.apply(batch(Topic(three).upsert({**row, "id": 4}, at(4))), Shapes(one, two, three))
    open_sink(spec).sink.show()


def test_a_view_follows_a_table_that_took_its_name(spec: SinkSpec) -> None:
    """The usual way to put a copy back: the table is renamed away, and the copy gets its name."""
    if spec.text("url").startswith("sqlite"):
        pytest.skip("SQLite binds a view's table by its name")
    sink, topic = open_sink(spec), Topic()
    sink.sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
    sink.sink.show()
    sink.close()
    asked(spec, "create table saved as select * from public_orders", "alter table public_orders rename to gone")
    asked(spec, "alter table saved add primary key (_key)", "alter table saved rename to public_orders")
    again = open_sink(spec)
    again.sink.apply(batch(topic.upsert(order(2), at(2))), SHAPES)
    again.sink.show()
    assert asked(spec, "select id from public_orders_live order by id") == [(1,), (2,)]
    again.close()


def test_a_rebuild_keeps_the_view_of_what_is_in_use(spec: SinkSpec) -> None:
    own = "_key text primary key, _pos text, _deleted boolean, _deleted_at text, _exact text"
    asked(spec, f"create table public_orders (id text, {own})")
    second, topic = open_sink(beside(spec, 2)), Topic()
    second.sink.apply(batch(topic.upsert(order(1), at(1))), SHAPES)
    second.commit(Watermark(epoch=1, lsn=1, offsets={}))
    second.close()
    generations = open_generations(spec)
    generations.switch(2, [ORDERS])
    assert asked(spec, "select * from public_orders_live") == [(1, "open", None)]
    generations.discard(2, [ORDERS])
    generations.close()
    assert sa.inspect(sa.create_engine(spec.text("url"), poolclass=sa.NullPool)).get_view_names() == [
        "public_orders_live"
    ]


@pytest.mark.parametrize("first", ["orders", "orders_live"])
def test_a_view_named_as_a_table_is_refused(spec: SinkSpec, first: str) -> None:
    other = shape(*ORDERS.columns, table="orders_live")
    both = [ORDERS, other] if first == "orders" else [other, ORDERS]
    sink = open_sink(spec)
    sink.sink.apply(batch(Topic(both[0]).upsert(order(1), at(1))), Shapes(*both))
    with pytest.raises(ConfigError, match="public_orders_live") as refused:
        sink.sink.apply(batch(Topic(both[1]).upsert(order(1), at(2))), Shapes(*both))
    assert refused.value.exit is Exit.CONFIG
    assert "live_views" in refused.value.hint
    sink.close()
    asked(spec, f"drop view if exists public_{first}_live")
    free = open_sink(SinkSpec(**{**_parts(spec), "options": {**spec.options, "live_views": "_now"}}))
    free.sink.apply(batch(Topic(both[1]).upsert(order(1), at(2))), Shapes(*both))


def _parts(spec: SinkSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


@pytest.mark.parametrize("theirs", ["create view {} as select 7 as mine", "create table {} (mine int)"])
def test_what_somebody_else_named_so_is_never_replaced(spec: SinkSpec, theirs: str) -> None:
    asked(spec, theirs.format("public_orders_live"))
    with pytest.raises(ConfigError, match="has another public_orders_live already") as refused:
        open_sink(spec).sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    assert refused.value.exit is Exit.CONFIG
    asked(spec, "select mine from public_orders_live")
    none = open_sink(SinkSpec(**{**_parts(spec), "options": {**spec.options, "live_views": ""}}))
    assert none.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES).applied == 1


@pytest.mark.parametrize("ending", ["live", "_a b", "_" + "x" * 40])
def test_an_ending_that_is_none_is_refused(ending: str) -> None:
    section = {"kind": "sql", "url": "sqlite:///x.db", "live_views": ending}
    with pytest.raises(ConfigError, match=r"sinks\.reports\.live_views") as refused:
        read_section("reports", UnreadSink.model_validate(section))
    assert refused.value.exit is Exit.CONFIG


def test_a_role_that_may_make_no_view_writes_rows(database: str, caplog: pytest.LogCaptureFixture) -> None:
    url = postgres_url(conninfo_to_dict(database))
    admin = spec_for("sql", prefix="shop", options={"url": url, "live_views": ""})
    first = open_sink(admin)
    first.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    first.commit(Watermark(epoch=1, lsn=1, offsets={}))
    first.close()
    role = fresh_name()
    asked(admin, f"create role {role} login password '{role}'", f"grant all on all tables in schema public to {role}")
    asked(admin, "revoke create on schema public from public")
    try:
        user, _, rest = url.partition("@")
        theirs = {"url": f"{user.partition('//')[0]}//{role}@{rest}"}
        low = spec_for("sql", prefix="shop", options=theirs, secrets={"password": role})
        sink = open_sink(low)
        assert sink.sink.apply(batch(Topic().upsert(order(2), at(2))), SHAPES).applied == 1
        sink.commit(Watermark(epoch=1, lsn=2, offsets={}))
        sink.close()
        assert asked(admin, "select id from public_orders order by id") == [(1,), (2,)]
        assert "live_view_refused" in caplog.messages
    finally:
        asked(admin, f"drop owned by {role}", f"drop role {role}")
