"""Views kept by the engine, compared with their own text on Postgres after each batch of changes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.views_against import Beside

_SHOP = """
create table customers (id int primary key, name text, city text);
create table orders (id bigint primary key, customer_id int, status text, placed_at timestamptz);
create table products (id int primary key, sku text, title text, price numeric(10, 2));
create table order_lines (id bigint primary key, order_id bigint, product_id int, qty int, price numeric);
insert into customers select g, 'n' || g, case when g % 3 > 0 then 'c"' || g % 5 end from generate_series(1, 10) g;
insert into products select g, 'sku' || g, 't' || g, g * 1.5 from generate_series(1, 10) g;
insert into orders select g, g % 12, (array['open', 'draft', 'paid'])[1 + g % 3],
  timestamptz '2024-01-01' + g * interval '1 hour 1.5 seconds' from generate_series(1, 30) g;
insert into order_lines select g, 1 + g % 35, g % 12, g % 4, g * 1.10 from generate_series(1, 100) g;
"""
VIEWS = {
    "a document of four tables": """
select o.id, o.status, o.placed_at, json_build_object('id', c.id, 'name', c.name, 'city', c.city) as customer,
  (select json_agg(json_build_object('sku', p.sku, 'title', p.title, 'qty', l.qty) order by l.id)
     from order_lines l left join products p on p.id = l.product_id where l.order_id = o.id) as lines,
  (select sum(l.qty * l.price) from order_lines l where l.order_id = o.id) as total
from orders o left join customers c on c.id = o.customer_id where o.status <> 'draft'""",
    "the root is the table with the finest rows": """
select l.id, o.status, c.name, l.qty * l.price as amount, x.mean from order_lines l join orders o on o.id = l.order_id
left join customers c on c.id = o.customer_id
left join lateral (select avg(y.price) as mean from order_lines y where y.order_id = o.id) x on true""",
    "aggregates over two steps": """
select c.id, c.name, (select count(*) from orders o where o.customer_id = c.id) as orders,
  (select max(o.placed_at) from orders o where o.customer_id = c.id) as last_at,
  exists (select 1 from orders o join order_lines l on l.order_id = o.id where o.customer_id = c.id and l.qty > 2)
  as big
from customers c""",
    "jsonb within jsonb": """
select c.id, jsonb_build_object('orders', (select coalesce(jsonb_agg(jsonb_build_object('id', o.id, 'lines',
  (select jsonb_agg(to_jsonb(l) order by l.id) from order_lines l where l.order_id = o.id)) order by o.id desc), '[]')
  from orders o where o.customer_id = c.id)) as doc from customers c""",
    "a grouped query in WITH": """
with t as (select order_id, sum(qty) as q, count(distinct product_id) as p from order_lines group by order_id)
select o.id, t.q, t.p, coalesce(t.q, 0) + 1 as more from orders o left join t on t.order_id = o.id""",
    "the first of several, arrays, whole rows, IN": """
select o.id, (select p.title from order_lines l join products p on p.id = l.product_id where l.order_id = o.id
  order by l.price desc, l.id limit 1) as top,
  (select string_agg(p.sku, ', ' order by l.id) from order_lines l join products p on p.id = l.product_id
   where l.order_id = o.id) as skus,
  array(select l.qty from order_lines l where l.order_id = o.id order by l.id) as qtys, to_jsonb(o) as j,
  row_to_json(o) as r
from orders o where o.customer_id in (select c.id from customers c where c.city is not null)""",
    "a series in a subquery": """
select o.id, (select json_agg(o.id + n order by n) from generate_series(1, o.id % 4) n) as numbers,
  (select count(*) from order_lines l cross join generate_series(1, l.qty) where l.order_id = o.id) as pieces
from orders o""",
    "the root in a query": """
with o as (select id, customer_id as cid, upper(status collate "C") as status from orders where status <> 'draft')
select o.*, c.name from o left join (select * from customers where city is not null) c on c.id = o.cid
where o.status <> 'X'""",
    "the first, in documents": """
select c.id, (select (array_agg(o.status order by o.placed_at desc, o.id))[1] from orders o where o.customer_id = c.id),
  (select (array_agg(o.placed_at order by o.id) filter (where o.status = $$open$$))[1] from orders o
   where o.customer_id = c.id) as opened from customers c""",
    "numerics": """
select p.id, p.price, p.price / 3 as third, round(p.price * 1.19, 2) as gross, p.sku || '-' || p.id as label,
  (select json_object_agg(l.id, l.qty order by l.id) from order_lines l where l.product_id = p.id) as quantities,
  case when p.price > 10 then 'dear' else 'cheap' end as class from products p""",
    "times": """
select o.id, date_trunc('day', o.placed_at) as day, extract(hour from o.placed_at) as hour, o.placed_at::date as date,
  o.placed_at + interval '1 month' as due, to_json(o.placed_at) as j from orders o""",
}

GROUPED = {
    "counts, least and greatest": """
select o.status, count(*) as n, count(o.customer_id) as known, min(o.placed_at) as first, max(o.customer_id) as last
from orders o where o.status is not null group by o.status""",
    "a day and a product": """
select l.product_id, date_bin('1 day', coalesce(o.placed_at, '1999-01-01'), '2000-01-01') as day, count(*) as n,
  sum(l.qty * l.price) as total, max(l.price) as top, avg(l.price) as mean, sum(l.qty) as q,
  bool_and(l.qty > 0) as all_sold
from order_lines l join orders o on o.id = l.order_id where l.product_id is not null group by 1, 2""",
    "different values": """
select o.status, count(distinct o.customer_id) as customers, count(distinct l.price) as prices,
  count(distinct l.product_id) filter (where l.qty > 1) as products, count(*) as n
from order_lines l join orders o on o.id = l.order_id where o.status is not null group by 1""",
    "filters, having, a moved parent": """
select coalesce(c.city, '-') as city, sum(l.price) filter (where l.qty > 1) as big, min(l.price) as low,
  count(*) filter (where l.qty = 0) as none from order_lines l left join orders o on o.id = l.order_id
left join customers c on c.id = o.customer_id group by 1 having count(*) > 2""",
    "NULL among the keys": """
select c.city, o.status, l.qty, count(*) as n, max(l.price) as top from order_lines l
left join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id group by 1, 2, 3""",
    "one row": """
select count(*) as n, sum(l.qty * l.price) as total, min(o.placed_at) as first, 7 as seven
from order_lines l join orders o on o.id = l.order_id where o.status = 'open'""",
    "one row that HAVING leaves out at times": """
select sum(o.customer_id) as s from orders o where o.status = 'paid' having count(*) > 9""",
    "first and last": """
select o.status, (array_agg(l.price order by l.qty desc nulls last, l.id))[1] as first, (array_agg(p.title
  order by o.placed_at desc, c.name collate "C", l.price, l.id desc))[1] as title,
  (array_agg(c.city order by l.price * -1, l.id) filter (where l.qty > 1))[1] as city
from order_lines l left join orders o on o.id = l.order_id
left join customers c on c.id = o.customer_id left join products p on p.id = l.product_id group by 1""",
    "all of a group": """
select c.city, array_agg(o.placed_at order by o.id) as at,
  string_agg(o.status, o.id::text order by o.id desc) as statuses,
  json_agg(json_build_object('id', o.id, 'at', o.placed_at) order by o.id) filter (where o.status <> 'draft') as docs,
  jsonb_object_agg(o.id, o.status order by o.id) as by_id, array_agg(distinct o.customer_id) as customers,
  jsonb_agg(distinct o.customer_id) as j, string_agg(distinct o.status collate "C", ', ') as different
from orders o left join customers c on c.id = o.customer_id group by c.city""",
    "a query in FROM": """
select t.status, month, count(*) as n, sum(amount) as total, count(distinct t.name) as names from (
  select o.status, extract(month from o.placed_at) as month, l.qty * l.price as amount, s.name
  from orders o join order_lines l on l.order_id = o.id join
    (select c.id, c.name from customers c where c.city is not null) s on s.id = o.customer_id where l.qty > 0) as t
where t.amount is not null group by 1, month""",
    "windows that overlap": """
select c.city, w.start, count(*) as n, sum(l.price) as total, (array_agg(o.id order by o.id))[1] as first
from order_lines l join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id
cross join lateral generate_series(date_bin('2 hours', o.placed_at, '2000-01-01') - interval '4 hours',
  date_bin('2 hours', o.placed_at, '2000-01-01'), interval '2 hours') as w (start) group by c.city, w.start""",
    "a row in several groups, or in none": """
select n, count(l.id) as lines, sum(l.price) as total from order_lines l
left join lateral generate_series(l.qty, 4, 2) as n on n <> 3 group by n having count(*) > 1""",
    "windows in timestamps without a zone": """
select date_trunc('day', o.placed_at at time zone 'UTC') as day, date_bin('90 minutes', o.placed_at::timestamp,
  timestamp '2000-01-01') as bin, count(*) as n from orders o group by 1, 2""",
    "columns that follow from the key": """
select c.id, c.name, upper(c.city collate "C") as city, count(*) as n,
  (select count(*) from orders x where x.customer_id = c.id) as orders
from order_lines l join orders o on o.id = l.order_id join customers c on c.id = o.customer_id
group by c.id having c.name <> 'x7'""",
    "a key that is not among the columns": """
select o.id, c.name, sum(l.qty) as q, array[c.id, o.customer_id] as both
from order_lines l join orders o on o.id = l.order_id join customers c on c.id = o.customer_id group by o.id, c.id""",
    "numerics of one scale, expressions written twice": """
select extract(month from o.placed_at) as m, round(l.price, 1) as p, date_trunc('day', o.placed_at) + interval '1 day'
  as next, count(*) as n from order_lines l left join orders o on o.id = l.order_id
group by extract(month from o.placed_at), 2, date_trunc('day', o.placed_at) + interval '1 day'""",
}

MANUAL = Path(__file__).resolve().parents[3] / "cdc" / "views" / "README.md"
_WINDOWS = MANUAL.read_text().partition("### Windows")[2]
PRINTED = {f"printed {n}": sql for n, sql in enumerate(re.findall(r"```sql\n(.*?)```", _WINDOWS, re.DOTALL))}
ALL = {**VIEWS, **GROUPED, **PRINTED}


@pytest.fixture
def shop(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(_SHOP)
        yield conn


def _change(conn: psycopg.Connection, chance: random.Random) -> None:
    order, line, customer = chance.randint(1, 30), chance.randint(1, 110), chance.randint(1, 12)
    conn.execute(
        chance.choice(
            [
                f"update orders set customer_id = {customer} where id = {order}",
                f"update orders set status = 'draft' where id = {order}",
                f"update orders set status = 'open' where id = {order}",
                f"update order_lines set price = '{chance.choice(['NaN', '1.5', '2.000', '-3'])}' where id = {line}",
                f"update order_lines set order_id = {order}, qty = {chance.randint(0, 5)} where id = {line}",
                f"delete from order_lines where id = {line}",
                f"insert into order_lines values ({line}, {order}, {customer}, 2, {chance.random():.4f})"
                " on conflict do nothing",
                f"update customers set name = 'x{chance.randint(1, 99)}' where id = {customer}",
                f"delete from customers where id = {customer}",
                f"insert into customers values ({customer}, 'new', 'c') on conflict do nothing",
                f"update products set title = 'p{chance.randint(1, 99)}', price = null where id = {customer}",
            ]
        )
    )


@pytest.mark.parametrize("sql", ALL.values(), ids=ALL)
def test_v3_v9_documents_are_what_postgres_says(sql: str, shop: psycopg.Connection, database: str) -> None:
    chance = random.Random(sql)
    beside = Beside(database, sql)
    try:
        beside.step()
        assert beside.differences() == []
        assert beside.published
        for _ in range(20):
            for _ in range(chance.randint(1, 6)):
                _change(shop, chance)
            beside.step()
            assert beside.differences() == []
    finally:
        beside.close()
