"""Which changes of a table make another view of the same text, and which do not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from cdc.process.errors import ConfigError
from cdc.record.schema import Column, TableSchema
from cdc.settings.model import ViewSettings
from cdc.views.known_views import KnownView, ViewIdentity, identity_of, other_identity, plan_digest, state_identity
from cdc.views.state_reach import Reached
from cdc.views.view_plan import planned
from cdc.views.view_records import PlanOutdated, StateRows, view_shape
from cdc.views.view_state import ViewState
from connectors.views.view_planning import PlannedView
from tests.unit.cdc.views.view_histories import SHAPES, History, Runner, shown

ORDERS, LINES, CUSTOMERS = SHAPES
EVERY = "select * from orders"
NAMED = "select o.id, c.name from orders o join customers c on c.id = o.customer_id"
COUNTED = "select o.id, (select count(*) from lines l where l.order_id = o.id) as n from orders o"
UNSEEN = """select o.id, json_build_object('times', o.customer_id * 1000000000) as n from orders o
  where o.customer_id > 0"""
"""It uses a column whose type none of its own columns has."""


def altered(shape: TableSchema, **kinds: str) -> TableSchema:
    columns = [replace(c, kind=kinds.get(c.name, c.kind), type=kinds.get(c.name, c.type)) for c in shape.columns]
    return replace(shape, version=2, columns=tuple(columns))


def with_column(shape: TableSchema, name: str) -> TableSchema:
    more = Column(name=name, attnum=9, type="text", type_oid=0, kind="text")
    return replace(shape, version=2, columns=(*shape.columns, more))


def keyed_by_two(shape: TableSchema) -> TableSchema:
    first, second, *others = shape.columns
    return replace(shape, version=2, columns=(first, replace(second, key_position=2), *others))


def difference(sql: str, *now: TableSchema, before: tuple[TableSchema, ...] = SHAPES, text: str = "") -> str:
    """Of the view over tables as they are now, those not named as before."""
    changed = {shape.table: shape for shape in now}
    shapes = [changed.get(shape.table, shape) for shape in before]
    return other_identity(identity_of(planned(sql, before)), identity_of(planned(text or sql, shapes)))


@pytest.mark.parametrize(
    ("sql", "now"),
    [
        (UNSEEN, altered(ORDERS, customer_id="int8")),
        (NAMED, altered(ORDERS, customer_id="int8")),
        ("select id from orders", with_column(ORDERS, "note")),
        (COUNTED, with_column(LINES, "n")),
    ],
)
def test_h466_what_changes_no_document_is_the_same_view(sql: str, now: TableSchema) -> None:
    assert difference(sql, now) == ""


@pytest.mark.parametrize(
    ("sql", "now", "words"),
    [
        (EVERY, with_column(ORDERS, "note"), "the column note was added to public.orders, and its text takes every"),
        (EVERY, altered(ORDERS, customer_id="int8"), "its column customer_id is of type int8 now, and was int4"),
        (UNSEEN, altered(ORDERS, customer_id="numeric"), "customer_id of public.orders is numeric now, and was int"),
        (COUNTED, keyed_by_two(LINES), "the key of public.lines is (id, order_id) now"),
    ],
)
def test_h466_what_changes_them_is_named(sql: str, now: TableSchema, words: str) -> None:
    assert words in difference(sql, now)


def test_h466_another_text_is_another_view() -> None:
    assert difference(EVERY, text=f"{EVERY} where id > 3") == "is published from another text"
    one = identity_of(planned(EVERY, SHAPES), "a")
    assert other_identity(one, replace(one, post="b")) == "is published from another function"
    assert ViewIdentity.from_json(one.to_json()) == one


def view_over(sql: str, *shapes: TableSchema) -> PlannedView:
    return PlannedView("v", ViewSettings(sql="v.sql"), planned(sql, shapes), shapes)


def known(view: PlannedView) -> KnownView:
    shape = view_shape("v", view.plan, "shop.view.v.1").to_json().decode()
    return KnownView(
        view="v", generation=1, topic="shop.view.v.1", topic_id="", partitions=1, digest=view.digest, shape=shape
    )


def test_h466_columns_that_change_documents_and_wider_types() -> None:
    before = view_over(EVERY, *SHAPES)
    assert before.other_than(known(before), None) == ""
    more = view_over(EVERY, with_column(ORDERS, "note"), LINES, CUSTOMERS)
    assert more.other_than(known(before), None) == "is published from another text"
    assert "the column note was added to public.orders" in more.other_than(known(before), before.identity)
    wider = view_over(UNSEEN, altered(ORDERS, customer_id="int8"), LINES, CUSTOMERS)
    unseen = view_over(UNSEEN, *SHAPES)
    assert wider.digest != unseen.digest
    assert wider.other_than(known(unseen), unseen.identity) == ""


def test_h466_a_state_goes_on_under_a_wider_type(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(UNSEEN, history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": 1})
    history.write("orders", 2, {"id": 2, "customer_id": 3})
    history.progress_now()
    for _ in range(6):
        runner.turn()
    assert list(shown(runner.topic)) == [b'{"id":1}'], "the other one is no int4"
    runner.end()
    runner.shapes = (altered(ORDERS, customer_id="int8"), LINES, CUSTOMERS)
    history.write("orders", 3, {"id": 3, "customer_id": 4})
    history.progress_now()
    runner.until_level()
    assert shown(runner.topic)[b'{"id":2}'] == {"id": 2, "n": '{"times" : 3000000000}'}
    assert len(shown(runner.topic)) == 3
    written = [record.key for records in runner.topic.records.values() for record in records]
    assert written.count(b'{"id":1}') == 1, "the state is the one that was there"
    runner.end()


PADDED = "select o.id, json_build_object('n', o.customer_id) as n from orders o"


def of_length(length: int, version: int) -> TableSchema:
    key, column = ORDERS.columns
    char = replace(column, kind="bpchar", type="bpchar", typmod=length + 4)
    return replace(ORDERS, version=version, columns=(key, char))


def padded(folder: Path) -> tuple[History, Runner]:
    """A view of a char(3), level."""
    history = History(random.Random(1))
    runner = Runner(PADDED, history, folder)
    runner.shapes = (of_length(3, 1), LINES, CUSTOMERS)
    history.input.shapes = {shape.topic: shape for shape in runner.shapes}
    history.write("orders", 1, {"id": 1, "customer_id": "a"})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    return history, runner


def test_h475_another_length_of_a_char_is_shown(tmp_path: Path) -> None:
    """Without its blanks the row is the same one, and Postgres sends nothing of it."""
    history, runner = padded(tmp_path)
    assert shown(runner.topic)[b'{"id":1}'] == {"id": 1, "n": '{"n" : "a  "}'}
    runner.end()
    runner.shapes = (of_length(5, 2), LINES, CUSTOMERS)
    history.write("orders", 2, {"id": 2, "customer_id": "b"})  # type: ignore[dict-item]
    history.progress_now()
    runner.until_level()
    assert shown(runner.topic)[b'{"id":1}'] == {"id": 1, "n": '{"n" : "a    "}'}
    runner.end()


def test_h475_another_length_in_the_key_is_another_view() -> None:
    grouped = "select o.customer_id, count(*) as n from orders o group by o.customer_id"
    before, now = (view_over(grouped, of_length(length, 1)) for length in (3, 5))
    assert before.other_than(known(before), before.identity) == ""
    for published in (before.identity, None):
        assert "its column customer_id, of its key, is of type char(5) now, and was char(3)" in now.other_than(
            known(before), published
        )
    beside = view_over(PADDED, of_length(3, 1))
    assert view_over(PADDED, of_length(5, 2)).other_than(known(beside), beside.identity) == ""


def numeric(scale: int, version: int) -> TableSchema:
    key, column = ORDERS.columns
    kind = replace(column, kind="numeric", type="numeric", typmod=(10 << 16 | scale) + 4)
    return replace(ORDERS, version=version, columns=(key, kind))


SUMMED = "select o.id, (select (sum(l.qty) / 2)::text from lines l where l.order_id = o.id) as n from orders o"
COUNTED_BY = "select o.customer_id, count(*) as n from orders o group by o.customer_id"


@pytest.mark.parametrize(
    ("sql", "before", "now", "outdated"),
    [
        (PADDED, of_length(3, 1), of_length(5, 2), True),
        (PADDED, of_length(3, 1), of_length(3, 2), False),
        (COUNTED_BY, numeric(2, 1), numeric(3, 2), True),
        (SUMMED, LINES, altered(LINES, qty="int8"), True),
        (SUMMED, LINES, altered(LINES, qty="int2"), False),
        (UNSEEN, ORDERS, altered(ORDERS, customer_id="int8"), False),
    ],
)
def test_h475_a_runner_asks_for_a_plan_of_the_types_of_now(
    sql: str, before: TableSchema, now: TableSchema, outdated: bool
) -> None:
    shapes = {shape.table: shape for shape in (*SHAPES, before)}
    relation = planned(sql, shapes.values()).relations[now.table]
    if outdated:
        with pytest.raises(PlanOutdated, match="has another type than when the view was planned"):
            StateRows(now, relation)
    else:
        StateRows(now, relation)


def test_h466_a_state_is_bound_and_another_is_refused(tmp_path: Path) -> None:
    history = History(random.Random(1))
    runner = Runner(UNSEEN, history, tmp_path)
    history.write("orders", 1, {"id": 1, "customer_id": 1})
    history.progress_now()
    runner.until_level()
    reached: Reached = runner.opened[1].reached
    plan = planned(UNSEEN, SHAPES)
    assert (reached.plan, reached.identity) == (plan_digest(plan), state_identity(plan))
    runner.end()
    wider = planned(UNSEEN, [altered(ORDERS, customer_id="int8"), LINES, CUSTOMERS])
    ViewState(tmp_path / "state", wider, 1).close()
    with pytest.raises(ConfigError, match="over other columns"):
        ViewState(tmp_path / "state", planned(EVERY, SHAPES), 1)


def test_h477_a_char_whose_length_is_gone_asks_for_a_rebuild(tmp_path: Path) -> None:
    """Its blanks are not in the state, and no row is sent that has them."""
    _, runner = padded(tmp_path)
    runner.end()
    without = of_length(-5, 2)
    assert without.columns[1].typmod == -1
    runner.shapes = (without, LINES, CUSTOMERS)
    with pytest.raises(ConfigError, match="another text of the view, or over other columns"):
        runner.turn()
    runner.end()
