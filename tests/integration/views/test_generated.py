"""Texts made up by seed, kept by the engine beside Postgres. The experiment ``views`` tries more of them."""

from __future__ import annotations

import psycopg
import pytest

from tests.views_against import Beside
from tests.views_trial import tried


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_v3_v9_v10_v13_v16_generated_views_are_true(seed: int, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        counted = tried(conn, database, seed)
    assert counted["texts"] == 6


def test_v16_a_numeric_key_is_the_same_with_more_zeros(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table a (k numeric primary key, t text)")
        conn.execute("create table b (id int primary key, r numeric)")
        conn.execute("insert into a values (2.0, 'x'), ('NaN', 'y'); insert into b values (1, 2), (2, 'NaN')")
        sql = "select a.k, a.t, (select count(*) from b where b.r = a.k) as n from a"
        beside = Beside(database, sql)
        try:
            for statement in (
                "update a set k = 2.00 where k = 2",
                "update a set t = 'z'",
                "delete from b",
                "delete from a",
            ):
                beside.step()
                assert beside.differences() == []
                conn.execute(statement.encode())
            beside.step()
            assert beside.differences() == []
        finally:
            beside.close()
