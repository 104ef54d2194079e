"""Session windows as the manual writes them: groups of neighbours that merge and split, beside Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.views_against import Beside

SESSIONS = """select o.customer_id, s.start, max(o.placed_at) as finish, count(*) as orders, sum(o.amount) as total
from orders o cross join lateral (
  select max(x.placed_at) as start from orders x
   where x.customer_id = o.customer_id and x.placed_at <= o.placed_at
     and not exists (select 1 from orders y where y.customer_id = x.customer_id
       and y.placed_at < x.placed_at and y.placed_at >= x.placed_at - interval '30 minutes')) as s
group by o.customer_id, s.start"""
_STATEMENTS = {
    "put": """insert into orders values ({id}, {customer}, timestamp '2026-01-01' + {minute} * interval '1 minute', 1.5)
      on conflict (id) do update set placed_at = excluded.placed_at, customer_id = excluded.customer_id""",
    "delete": "delete from orders where id = {id}",
    "number": "update orders set id = {id} + 100 where id = {id}",
    "nothing": "update orders set placed_at = null where id = {id}",
    "amount": "update orders set amount = amount + 1 where customer_id = {customer}",
    "everything": "truncate orders",
}
_CHANGES = st.tuples(
    st.sampled_from([*["put"] * 8, *_STATEMENTS]),
    st.integers(1, 8),
    st.sampled_from(["1", "1", "1", "2", "null"]),
    st.sampled_from([0, 10, 29, 30, 31, 40, 60, 61, 75, 90, 91, 120]),
)


@pytest.fixture
def orders(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, customer_id int, placed_at timestamp, amount numeric)")
        yield conn


def change(conn: psycopg.Connection, what: str, number: int, customer: str, minute: int) -> None:
    """One statement. One that takes a key twice is none."""
    try:
        conn.execute(_STATEMENTS[what].format(id=number, customer=customer, minute=minute).encode())
    except psycopg.errors.UniqueViolation:
        return


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(_CHANGES, min_size=1, max_size=4), min_size=1, max_size=8))
def test_v3_v9_v13_sessions_merge_and_split_as_in_postgres(
    batches: list[list[tuple[str, int, str, int]]], orders: psycopg.Connection, database: str
) -> None:
    orders.execute("truncate orders")
    beside = Beside(database, SESSIONS)
    try:
        for batch in batches:
            for what, number, customer, minute in batch:
                change(orders, what, number, customer, minute)
            beside.step()
            assert beside.differences() == []
    finally:
        beside.close()


def test_v9_a_row_between_two_sessions_merges_them(orders: psycopg.Connection, database: str) -> None:
    beside = Beside(database, SESSIONS)
    try:
        for what, number, minute, sessions in (
            ("put", 1, 0, 1),
            ("put", 2, 60, 2),
            ("put", 3, 30, 1),
            ("put", 3, 91, 3),
            ("put", 3, 30, 1),
            ("delete", 3, 0, 2),
        ):
            change(orders, what, number, "1", minute)
            beside.step()
            assert beside.differences() == []
            assert len(beside.published) == sessions
    finally:
        beside.close()
