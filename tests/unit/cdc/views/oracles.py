"""Views over three small tables, each with its rows worked out by hand, by plain Python."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from tests.unit.cdc.views.view_histories import Rows

DOCUMENTS = """select o.id, c.name, (select json_agg(l.qty order by l.id) from lines l where l.order_id = o.id) as lines
from orders o left join customers c on c.id = o.customer_id"""
GROUPS = """select c.name, count(*) as n, sum(l.qty) as total, max(l.qty) as most
from lines l left join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id group by 1"""


def documents_of(rows: Rows) -> dict[bytes, object]:
    """The first view, by hand."""
    found: dict[bytes, object] = {}
    for number, order in rows["orders"].items():
        customer = rows["customers"].get(order["customer_id"] or 0)
        lines = [line["qty"] for _, line in sorted(rows["lines"].items()) if line["order_id"] == number]
        name = None if customer is None else customer["name"]
        shown = None if not lines else "[" + ", ".join("null" if q is None else str(q) for q in lines) + "]"
        found[orjson.dumps({"id": number})] = {"id": number, "name": name, "lines": shown}
    return found


def groups_of(rows: Rows) -> dict[bytes, object]:
    """The second view, by hand: lines whose customer is not known are a group as well."""
    groups: dict[int | None, list[int | None]] = {}
    for line in rows["lines"].values():
        order = rows["orders"].get(line["order_id"] or 0)
        customer = None if order is None else rows["customers"].get(order["customer_id"] or 0)
        name = None if customer is None else customer["name"]
        groups.setdefault(name, []).append(line["qty"])
    found: dict[bytes, object] = {}
    for name, quantities in groups.items():
        known = [q for q in quantities if q is not None]
        figures = {"n": len(quantities), "total": sum(known) if known else None, "most": max(known, default=None)}
        found[orjson.dumps({"name": name})] = {"name": name, **figures}
    return found


TOTAL = """select count(*) as n, sum(l.qty) as total from lines l join orders o on o.id = l.order_id
where o.customer_id is not null"""


def total_of(rows: Rows) -> dict[bytes, object]:
    """The third view, by hand: one row, over no lines as well."""
    orders = {number for number, order in rows["orders"].items() if order["customer_id"] is not None}
    counted = [line["qty"] for line in rows["lines"].values() if line["order_id"] in orders]
    known = [q for q in counted if q is not None]
    return {b"{}": {"n": len(counted), "total": sum(known) if known else None}}


SPREAD = """select n, count(*) as lines from lines l join orders o on o.id = l.order_id
cross join lateral generate_series(l.qty, o.customer_id) as n group by n"""


def spread_of(rows: Rows) -> dict[bytes, object]:
    """The fourth view, by hand: a line stands in several groups, or in none."""
    groups: dict[int, int] = {}
    for line in rows["lines"].values():
        order = rows["orders"].get(line["order_id"] or 0)
        end = None if order is None else order["customer_id"]
        for n in range(line["qty"], end + 1) if line["qty"] is not None and end is not None else ():
            groups[n] = groups.get(n, 0) + 1
    return {orjson.dumps({"n": n}): {"n": n, "lines": lines} for n, lines in groups.items()}


VIEWS: dict[str, tuple[str, Callable[[Rows], dict[bytes, object]]]] = {
    "documents": (DOCUMENTS, documents_of),
    "groups": (GROUPS, groups_of),
    "one row": (TOTAL, total_of),
    "several groups of a row": (SPREAD, spread_of),
}
