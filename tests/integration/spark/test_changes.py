"""Tables that change their shape while they stream, from a real Postgres into each store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fresh import new_database, new_index_prefix, new_redis_url, new_topic_prefix
from tests.integration.capture.pipeline import Pipeline
from tests.integration.spark.changing import STORES, Changing, opened, sinks_of
from tests.integration.spark.conftest import Sinks
from tests.programs import Spawned

pytestmark = pytest.mark.long
TYPED = ("search", "delta", "postgres", "sqlite")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to a table: ``create`` (``{t}`` is its name), rows, the change, rows after it.

    ``held``: the stores that cannot take column ``n`` as it is then; ``back``: what makes it as it was.
    """

    name: str
    create: str = "create table {t} (id int primary key, n int, note text)"
    rows: tuple[str, ...] = ("insert into {t} select i, i, 'note ' || i from generate_series(1, 5) i",)
    change: tuple[str, ...]
    after: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    back: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        return f"t_{self.name}"

    def filled(self, statements: tuple[str, ...]) -> list[str]:
        return [statement.replace("{t}", self.table) for statement in statements]


PARTED = (
    "create table {t} (id int primary key, n int) partition by range (id);"
    "create table {t}_1 partition of {t} for values from (0) to (100)"
)

CHANGES = [
    Change(
        name="h51_column_added",
        change=("alter table {t} add column more text, add column far timestamptz",),
        after=("update {t} set more = 'm', far = 'infinity' where id = 2", "insert into {t} values (6, 6, 'n', 'm')"),
    ),
    Change(
        name="h51_column_dropped",
        change=("alter table {t} drop column note",),
        after=("update {t} set n = 9 where id = 2", "insert into {t} values (6, 6)", "delete from {t} where id = 1"),
    ),
    Change(
        name="h51_type_widened",
        create="create table {t} (id int primary key, n int, m numeric(6,2), f float4, v varchar(9))",
        rows=("insert into {t} select i, i, i + 0.25, i / 2.0, 'v' from generate_series(1, 5) i",),
        change=(
            "alter table {t} alter n type bigint, alter m type numeric(12,4), alter f type float8, alter v type text",
        ),
        after=("insert into {t} values (6, 1099511627776, 12345678.1234, 1e300, 'a longer one')",),
    ),
    Change(
        name="h51_identity_full",
        change=("alter table {t} replica identity full",),
        after=(
            "update {t} set n = 9 where id = 2",
            "update {t} set id = 20 where id = 3",
            "delete from {t} where id = 1",
        ),
    ),
    Change(
        name="h34_enum_value_added",
        create="create type mood as enum ('sad', 'ok'); create table {t} (id int primary key, m mood)",
        rows=("insert into {t} values (1, 'sad'), (2, 'ok')",),
        change=("alter type mood add value 'happy'",),
        after=("insert into {t} values (3, 'happy')", "update {t} set m = 'happy' where id = 1"),
    ),
    Change(
        name="h45_partition_made",
        create=PARTED,
        rows=("insert into {t} select i, i from generate_series(1, 5) i",),
        change=("create table {t}_2 partition of {t} for values from (100) to (200)",),
        after=("insert into {t} values (101, 1), (102, 2)", "update {t} set id = 103 where id = 1"),
    ),
    Change(
        name="h51_columns_in_another_order",
        create="create table {t} (id int primary key, a text, b int)",
        rows=("insert into {t} select i, 'a' || i, i from generate_series(1, 5) i",),
        change=(
            "begin; alter table {t} add column a2 text; update {t} set a2 = a; alter table {t} drop column a;"
            "alter table {t} rename column a2 to a; update {t} set a = a || '!'; commit",
        ),
        after=("insert into {t} (id, a, b) values (6, 'six', 6)", "update {t} set b = 0 where id = 2"),
    ),
    Change(
        name="h51_text_to_integer",
        create="create table {t} (id int primary key, n text)",
        rows=("insert into {t} select i, i from generate_series(1, 5) i",),
        change=("alter table {t} alter n type int using n::int",),
        after=("update {t} set n = 7", "insert into {t} values (6, 6)", "delete from {t} where id = 1"),
        held=TYPED,
        back=("alter table {t} alter n type text", "update {t} set n = 'back ' || n"),
    ),
    Change(
        name="h51_integer_to_text",
        change=("alter table {t} alter n type text",),
        after=("update {t} set n = 'text ' || n", "insert into {t} values (6, 'six')"),
        held=("search", "sqlite"),
        back=("alter table {t} alter n type int using id", "update {t} set note = 'back'"),
    ),
]


REREAD = [
    Change(
        name="h37_default_added",
        change=("alter table {t} add column level int not null default 7, add column at timestamptz default now()",),
    ),
    Change(name="h51_column_renamed", change=("alter table {t} rename column note to remark",)),
    Change(name="h85_rewritten_by_using", change=("alter table {t} alter note type text using upper(note)",)),
    Change(
        name="h85_dropped_and_added_again",
        change=("begin; alter table {t} drop column note; alter table {t} add column note text default 'new'; commit",),
    ),
    Change(
        name="h85_more_digits",
        create="create table {t} (id int primary key, at timestamp(3))",
        rows=("insert into {t} values (1, '2016-11-04 13:51:30.123')",),
        change=("alter table {t} alter at type timestamp(6)",),
        after=("insert into {t} values (2, '2016-11-04 13:51:30.123456')",),
    ),
    Change(
        name="h86_partition_attached",
        create=PARTED,
        rows=("insert into {t} select i, i from generate_series(1, 5) i",),
        change=(
            "create table side.{t}_2 (like {t}_1 including all);insert into side.{t}_2 values (101, 1), (102, 2)",
            "alter table {t} attach partition side.{t}_2 for values from (100) to (200)",
        ),
    ),
]
"""What no event tells of: the catalog watch has the table read again."""


@pytest.fixture(scope="module")
def changing(
    postgres: str,
    kafka: str,
    redis_server: str,
    opensearch: str,
    spark_session: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Changing]:
    """One pipeline for all changes, each on a table of its own; capture and sinks run all the time."""
    folder = tmp_path_factory.mktemp("changes")
    with ExitStack() as at_end:
        enter = at_end.enter_context
        dsn, prefix = enter(new_database(postgres)), enter(new_topic_prefix(kafka))
        redis, index = enter(new_redis_url(redis_server)), enter(new_index_prefix(opensearch))
        document = {
            "name": prefix,
            "source": {"dsn": dsn, "tables": ["public.*"]},
            "log": {"bootstrap_servers": kafka, "partitions": 1},
            "capture": {"http_address": ""},
            "spark": {"http_address": ""},
            "snapshot": {"watch": "1s"},
            "sinks": sinks_of(dsn, redis, opensearch, index, folder),
        }
        pipeline = Pipeline(dsn, document, folder, _never)
        pipeline.execute("create schema side")
        pipeline.prepare(
            "create table t_other (id text primary key)", *[c.filled((c.create,))[0] for c in (*CHANGES, *REREAD)]
        )
        enter(pipeline.capturing())
        running = enter(Sinks(spark_session, folder).running(pipeline.settings))
        for change in (*CHANGES, *REREAD):
            pipeline.execute(*change.filled(change.rows))
        yield Changing(pipeline, running, enter(opened(pipeline)))


def _never(*argv: str | Path, env: Mapping[str, str] | None = None) -> Spawned:
    raise NotImplementedError("this pipeline runs in the test's own process")


@pytest.mark.parametrize("change", CHANGES, ids=[one.name for one in CHANGES])
def test_a_change_of_shape_arrives_in_every_store(changing: Changing, change: Change) -> None:
    changing.await_equal(change.table)
    changing.execute(*change.filled(change.change), *change.filled(change.after))
    changing.await_equal(change.table, tuple(store for store in STORES if store not in change.held))
    changing.await_held(change.table, "n", change.held)
    if change.held:
        # Whoever holds a table holds nothing else up, and claims what it shows of the rest.
        changing.execute(f"insert into t_other values ('{change.name}')")
        changing.await_equal("t_other")
        changing.await_held(change.table, "n", change.held)
        changing.execute(*change.filled(change.back))
        changing.await_equal(change.table, ("cache", *change.held))


@pytest.mark.parametrize("change", REREAD, ids=[one.name for one in REREAD])
def test_a_change_that_no_event_tells_of_arrives_in_every_store(changing: Changing, change: Change) -> None:
    changing.await_equal(change.table)
    changing.execute(*change.filled(change.change), *change.filled(change.after))
    changing.await_equal(change.table)
