"""Types that JSON has otherwise than as their text, and names, beside Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from cdc.views.sql_types import TEXT_IN_JSON
from cdc.views.syntax import ViewRefused
from tests.views_against import Beside

_SETUP = """
create type addr as (no int, street text);
create type visit as (place addr, at timestamptz[]);
create domain home as addr check ((value).no is null or (value).no > 0);
create domain pair as int[];
create table t (id int primary key, w float4, ws float4[], o oid, c addr, cs addr[], v visit, h home, ps pair[],
  iv int2vector);
insert into t values
  (1, 0.1, '{1e6,NaN,-0}', 42, row(1, 'a b'), array[row(1, 'a')::addr, null], row(row(2, 'b'), '{now}'), row(3, 'c'),
   '{"{1,2}","{3}"}', '1 2'),
  (2, 'NaN', '{}', 4294967295, null, '{}', row(null, null), null, null, null),
  (3, 1234567, null, null, row(null, null), null, null, null, null, null),
  (4, null, null, null, null, null, null, null, null, null);
create table a (id int primary key, x text);
create table b (id int primary key, a_id int, y text);
insert into a select g, 'x' || g from generate_series(1, 6) g;
insert into b select g, nullif(g % 4, 0), 'y' || g from generate_series(1, 9) g;
"""


@pytest.fixture
def dsn(database: str) -> Iterator[str]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(_SETUP.encode())
    yield database


def _kept(dsn: str, sql: str, *changes: str) -> None:
    """A view has what its text gives, before and after changes."""
    beside = Beside(dsn, sql)
    try:
        for change in ("select 1", *changes):
            beside.conn.execute(change.encode())
            beside.step()
            assert beside.differences() == [], change
        assert beside.found()
    finally:
        beside.close()


@pytest.mark.parametrize("column", ["c", "cs", "v", "h", "ps", "iv"])
def test_h463_json_that_is_no_text_is_refused(dsn: str, column: str) -> None:
    """Postgres says of each that its JSON is no string, and a view that would write one is refused."""
    with psycopg.connect(dsn) as conn:
        query = f"select distinct json_typeof(to_json({column})) from t where {column} is not null"
        kinds = {kind for (kind,) in conn.execute(query.encode())}
    assert kinds <= {"object", "array"}
    for sql in (f"select id, to_json({column}) as x from t", "select id, to_json(t) as x from t"):
        with pytest.raises(ViewRefused, match="as JSON"):
            Beside(dsn, sql)
    # An array's text is not known here, one composite's is.
    text = f", json_build_object('x', {column}::text) as x" if column in ("c", "v", "h", "iv") else ""
    _kept(dsn, f"select id, {column}{text} from t", "update t set id = id + 10")


def test_h463_types_that_are_text_in_json_are_so_on_postgres(dsn: str) -> None:
    """No array, no composite, and nothing that a cast to json could be of."""
    with psycopg.connect(dsn) as conn:
        found = conn.execute(
            "select t.typname from pg_type t where t.typname = any (%s) and t.typnamespace = 'pg_catalog'::regnamespace"
            " and t.typtype in ('b', 'm') and t.typsubscript = 0 and t.oid < 16384",
            (sorted(TEXT_IN_JSON),),
        ).fetchall()
    assert {name for (name,) in found} == TEXT_IN_JSON


def test_h463_a_star_carries_what_no_expression_names(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table m (id int primary key, price money, at timetz, flags bit(4), more varbit)")
        conn.execute("insert into m values (1, 1234.5, '13:51:30.5+02', '1010', '101'), (2, null, null, null, null)")
    _kept(dsn, "select * from m", "update m set price = -2, at = '00:00-01', flags = '0001', more = '' where id = 2")
    with pytest.raises(ViewRefused, match="cannot carry the column price of type money"):
        Beside(dsn, "select id, to_json(m) as j from m")


def test_h464_float4_within_whole_rows(dsn: str) -> None:
    sql = """
select t.id, t.w, t.ws, t.o, w::text as said, json_build_object('w', w, 'ws', ws, 'o', o) as j,
  jsonb_build_object('w', w, 'ws', ws, 'o', o) as jb,
  (select json_agg(r order by r.id) from (select x.id, x.w, x.ws, x.o from t x) r where r.id = t.id) as rows
from t"""
    _kept(
        dsn,
        sql,
        "update t set w = w * 3, ws = array[w, w / 7]",
        "update t set w = -w / 1e7",
        "delete from t where id = 2",
    )


def test_h464_a_group_lists_float4(dsn: str) -> None:
    sql = "select o, count(*) as n from t group by o"
    with pytest.raises(ViewRefused, match="oid are not compared"):
        Beside(dsn, sql)
    _kept(
        dsn,
        "select id % 2 as k, array_agg(w order by id) as ws, json_agg(w order by id) as js,"
        " (array_agg(w order by id desc))[1] as last from t group by 1",
        "update t set w = id * 1e6",
        "insert into t (id, w) values (5, '-0'), (6, 'Infinity')",
        "delete from t where id < 4",
    )


def test_h463_rows_and_nulls_of_json_agg_stand_as_there(dsn: str) -> None:
    sql = """
select a.id, (select json_agg(p order by b.id) from b left join a p on p.id = b.id where b.a_id = a.id) as rows,
  (select json_agg(case when b.id > 5 then array[b.id] end order by b.id) from b where b.a_id = a.id) as lists from a"""
    _kept(dsn, sql, "update b set a_id = 1", "delete from a where id > 3")


NAMES = [
    "with a as (select * from a) select id, x from a",
    "with a as (select id, y from b) select id, y from a",
    "with b as (select * from a), a as (select id, x as w from b) select id, w from a",
    "with a as (select id, y from b) select id, y from (with a as (select id, y from a) select * from a) q",
    "with b as (select id, x from a), q as (select id, x from b)"
    " select id, x from (with b as (select * from t) select id, x from q) p",
    "select id, (with q as (select b.id, b.y from b where b.a_id = a.id) select json_agg(q order by q.id) from q) as n"
    " from a",
    'select id, (with b as (select id, x from a) select max(b.x collate "C") from b where b.id = a.id) as n,'
    " (select count(*) from b where b.a_id = a.id) as m from a",
    "select id, (select count(*) from (select * from b) a where a.a_id = b.id) as n from a b",
    "with q as (select a_id, count(*) as n from b group by a_id), b as (select a_id, n + 1 as n from q)"
    " select a.id, b.n from a left join b on b.a_id = a.id",
]


@pytest.mark.parametrize("sql", NAMES, ids=[str(number) for number in range(len(NAMES))])
def test_h465_names_mean_what_they_mean_to_postgres(dsn: str, sql: str) -> None:
    _kept(
        dsn,
        sql,
        "update b set a_id = id % 3, y = y || '!'",
        "update a set x = 'z' where id = 2",
        "delete from b where id = 3",
    )
