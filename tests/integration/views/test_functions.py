"""Each function, operator and cast of a view beside Postgres, over values at the edges of their types."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from cdc.views.syntax import NotComputable, ViewRefused
from tests.views_against import Beside, same_json
from tests.views_edges import EXPRESSIONS, REFUSED, SETUP, rows

_TRIED = """
create function tried(expression text) returns table (id int, is_null bool, said text, failed text) as $$
declare number int;
begin
  for number in select e.id from edge e order by 1 loop
    id := number; is_null := null; said := null; failed := null;
    begin
      execute format('select x is null, format(''%%s'', x) from (select %s as x from edge where id = %s) e',
                     expression, number) into is_null, said;
    exception when others then failed := sqlerrm;
    end;
    return next;
  end loop;
end $$ language plpgsql
"""


@pytest.fixture
def edges(database: str) -> Iterator[tuple[psycopg.Connection, str]]:
    with psycopg.connect(database, autocommit=True, options="-c timezone=UTC -c intervalstyle=iso_8601") as conn:
        for statement in (*SETUP, _TRIED):
            conn.execute(statement.encode())
        values = rows(24, 1)
        marks = ", ".join(["%s"] * len(values[0]))
        for row in values:
            conn.execute(f"insert into edge values ({marks})".encode(), row)
        yield conn, database


def _escaped(said: str) -> str:
    return said.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def _type(conn: psycopg.Connection, expression: str) -> str | None:
    """None for what Postgres does not know."""
    try:
        said = conn.execute(f"select {expression} as x from edge limit 0".encode()).description
    except (psycopg.errors.UndefinedFunction, psycopg.errors.AmbiguousFunction):
        return None
    assert said is not None
    row = conn.execute(
        "select coalesce(nullif(e.typname, '') || '[]', t.typname) from pg_type t"
        " left join pg_type e on e.oid = t.typelem and t.typcategory = 'A' where t.oid = %s",
        (said[0].type_code,),
    ).fetchone()
    assert row is not None
    return str(row[0])


def different(conn: psycopg.Connection, beside: Beside, expression: str) -> list[str]:
    """Where our value of an expression is not Postgres's: a line for each row."""
    typed = _type(conn, expression)
    try:
        plan = beside.other(f"select id, {expression} as x from edge")
    except ViewRefused as refused:
        return [f"refused: {refused}"] if typed is not None and expression not in REFUSED else []
    kind = plan.outputs[1][1]
    if typed not in (str(kind), kind.name, f"{kind.kind}{'[]' * kind.array}"):
        return [f"typed as {kind}, by Postgres as {typed}"]
    encode = beside.encoder(plan)
    try:
        ours = {key[0]: document for key, document in beside.documents_of(plan).items()}
    except Exception as failure:
        return [f"crashed: {failure!r}"]
    found = []
    for number, is_null, said, failed in conn.execute("select * from tried(%s)", (expression,)):
        expected = None
        if failed is None:
            expected = encode(f"{number}\t{chr(92) + 'N' if is_null else _escaped(said)}".encode())
        got = ours[number]
        if isinstance(got, NotComputable):
            if failed is None and not (kind.kind == "interval" and "infinity" in said):
                found.append(f"row {number}: not computable ({got}), Postgres says {expected!r}")
        elif failed is not None:
            found.append(f"row {number}: {got}, Postgres says {failed}")
        elif got is None or not same_json(got, expected):
            found.append(f"row {number}: {got}, Postgres says {(expected or b'').decode()}")
    return found


@pytest.mark.slow
def test_v10_v12_every_function_says_what_postgres_says(edges: tuple[psycopg.Connection, str]) -> None:
    conn, database = edges
    beside = Beside(database, "select e.* from edge e")
    try:
        beside.step()
        wrong = {expression: lines for expression in EXPRESSIONS if (lines := different(conn, beside, expression))}
    finally:
        beside.close()
    said = "\n".join(f"{expression}\n    " + "\n    ".join(lines[:6]) for expression, lines in wrong.items())
    assert not wrong, f"{len(wrong)} of {len(EXPRESSIONS)} differ\n{said}"
