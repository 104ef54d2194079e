"""Subqueries that compare with a column of the row outside, beside Postgres: neighbours are found by ranges."""

from __future__ import annotations

import random

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.views.syntax import ViewRefused
from tests.examples import examples
from tests.views_against import Beside

_TABLE = """create table {} (id int primary key, k int, n int, d date, t timestamp, b bigint, m numeric)"""
_COLUMNS = {"n": "n", "d": "d", "t": "t", "b": "n", "m": "m"}
_SHIFTS = {"n": " - 1", "d": " - 1", "t": " - interval '1 hour'", "b": " + 2", "m": " + 0.5"}


def _condition(chance: random.Random, inner: str, outer: str) -> str:
    column = chance.choice(list(_COLUMNS))
    other = f"{outer}.{column}{_SHIFTS[column] if chance.random() < 0.4 else ''}"
    sides = [f"{inner}.{column}", other]
    if chance.random() < 0.3:
        sides.reverse()
    return f"{sides[0]} {chance.choice(['<', '<=', '>', '>='])} {sides[1]}"


def _where(chance: random.Random, inner: str, outer: str) -> str:
    tie = f"{inner}.k = {outer}.{chance.choice(['k', 'k', 'id'])}"
    return " and ".join([tie, *(_condition(chance, inner, outer) for _ in range(chance.choice([1, 1, 2, 3])))])


def _value(chance: random.Random, inner: str) -> str:
    column = chance.choice(list(_COLUMNS))
    named = f"{inner}.{column}"
    made = [f"max({named})", f"min({named})", f"max({named})", "count(*)", f"count({named})", f"sum({inner}.n)"]
    return chance.choice(
        [*made, f"array_agg({inner}.id order by {inner}.id)", f"max({named}) filter (where {inner}.n > 1)"]
    )


def text_of(chance: random.Random) -> str:
    """A document view with a subquery in a subquery."""
    nested = ""
    if chance.random() < 0.7:
        word = chance.choice(["exists", "not exists"])
        nested = f" and {word} (select 1 from b y where {_where(chance, 'y', 'x')})"
    if chance.random() < 0.3:
        nested += f" and (select count(*) from a z where {_where(chance, 'z', 'x')}) > {chance.randint(0, 1)}"
    sub = f"select {_value(chance, 'x')} as v from {chance.choice('ab')} x where {_where(chance, 'x', 'o')}{nested}"
    if chance.random() < 0.5:
        return f"select o.id, ({sub}) as v from a o"
    return f"select o.id, s.v from a o cross join lateral ({sub}) as s"


def _rows(chance: random.Random, conn: psycopg.Connection) -> None:
    for _ in range(chance.randint(1, 6)):
        table, number = chance.choice("ab"), chance.randint(1, 12)
        some = [chance.choice([None, 1, 2, 3, 4]) for _ in range(6)]
        days = [None if one is None else f"2026-01-0{one}" for one in some]
        hours = None if some[3] is None else f"2026-01-01 0{some[3]}:00"
        kind = chance.random()
        if kind < 0.2:
            conn.execute(f"delete from {table} where id = %s".encode(), (number,))
        elif kind < 0.25:
            conn.execute(f"truncate {table}".encode())
        else:
            values = (number, chance.choice([1, 1, 2, None]), some[1], days[2], hours, some[4], some[5])
            upsert = f"""insert into {table} values (%s, %s, %s, %s, %s, %s, %s) on conflict (id) do update
                set (k, n, d, t, b, m) = (excluded.k, excluded.n, excluded.d, excluded.t, excluded.b, excluded.m)"""
            conn.execute(upsert.encode(), values)


@pytest.mark.parametrize("part", range(2))
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1))
def test_v3_v13_ranges_are_as_in_postgres(part: int, seed: int, database: str) -> None:
    chance = random.Random(seed * 2 + part)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("drop table if exists a, b")
        for table in "ab":
            conn.execute(_TABLE.format(table).encode())
        sql = text_of(chance)
        try:
            beside = Beside(database, sql)
        except ViewRefused:
            return
        try:
            for _ in range(6):
                _rows(chance, conn)
                beside.step()
                assert beside.differences() == [], sql
        finally:
            beside.close()
