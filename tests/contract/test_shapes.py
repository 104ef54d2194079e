"""Tables whose shape changes, over every store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from cdc.record.schema import Column, TableSchema
from sinks.contract.port import CannotCarry
from tests.contract.orders import order
from tests.contract.stores import Store, live, rows
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, numeric, shape
from tests.single_rows import canonical_row, plain_row

SEARCH = frozenset(("opensearch",))
TYPED = frozenset(("delta", "iceberg", "postgres", "postgres-generic"))
FIXED = frozenset(("sqlite", "sqlite-generic"))
"""A type is not changed there once it is made."""


@dataclass(frozen=True, kw_only=True)
class Retype:
    """``alter column v type``: a value from before and one from after it; ``held``: by which stores."""

    name: str
    before: Column
    after: Column
    old: Any
    new: Any
    held: frozenset[str] = frozenset()

    def shapes(self) -> tuple[TableSchema, TableSchema]:
        key = column("id", "int8", key=1)
        return shape(key, self.before), shape(key, self.after, version=2)


RETYPES = [
    Retype(name="int4 to int8", before=column("v", "int4"), after=column("v", "int8"), old=1, new=2**40),
    Retype(name="int8 to int4", before=column("v", "int8"), after=column("v", "int4"), old=1, new=2),
    Retype(name="float4 to float8", before=column("v", "float4"), after=column("v", "float8"), old=0.5, new=1e300),
    Retype(
        name="varchar to text", before=column("v", "varchar", typmod=9), after=column("v", "text"), old="a", new="b"
    ),
    Retype(name="json to jsonb", before=column("v", "json"), after=column("v", "jsonb"), old="[1]", new='{"a":1}'),
    Retype(name="numeric grows", before=numeric("v", 6, 2), after=numeric("v", 12, 4), old="1.10", new="12345678.1234"),
    Retype(
        name="timestamp(3) to (6)",
        before=column("v", "timestamp", typmod=3),
        after=column("v", "timestamp", typmod=6),
        old="2016-11-04T13:51:30.123Z",
        new="2016-11-04T13:51:30.123456Z",
    ),
    Retype(
        name="date to timestamp",
        before=column("v", "date"),
        after=column("v", "timestamp"),
        old="2016-11-04Z",
        new="2016-11-04T13:51:30Z",
    ),
    Retype(name="array to text", before=column("v", "text", array=True), after=column("v", "text"), old=["a"], new="b"),
    Retype(
        name="text to array",
        before=column("v", "text"),
        after=column("v", "text", array=True),
        old="a",
        new=["b"],
        held=TYPED,
    ),
    Retype(
        name="int4 to numeric",
        before=column("v", "int4"),
        after=numeric("v", 20, 2),
        old=1,
        new="12345678.10",
        held=SEARCH | FIXED,
    ),
    Retype(
        name="int4 to text", before=column("v", "int4"), after=column("v", "text"), old=1, new="b", held=SEARCH | FIXED
    ),
    Retype(
        name="text to int4",
        before=column("v", "text"),
        after=column("v", "int4"),
        old="a",
        new=7,
        held=SEARCH | TYPED | FIXED,
    ),
    Retype(name="enum to text", before=column("v", "enum"), after=column("v", "text"), old="a", new="b", held=SEARCH),
    Retype(
        name="int8 to float8",
        before=column("v", "int8"),
        after=column("v", "float8"),
        old=2**60 + 1,
        new=0.5,
        held=SEARCH | TYPED | FIXED,
    ),
]


ALIKE = {
    "int8 to int4", "float4 to float8", "varchar to text", "json to jsonb", "timestamp(3) to (6)", "array to text",
    "int4 to text", "int8 to float8",
}  # fmt: skip
"""Those that stores take as they take another one of the list."""


def named(changes: list[Retype]) -> pytest.MarkDecorator:
    marks = {name: [pytest.mark.slow] for name in ALIKE}
    return pytest.mark.parametrize(
        "change", [pytest.param(one, id=one.name, marks=marks.get(one.name, [])) for one in changes]
    )


@named(RETYPES)
def test_h51_a_retyped_column_is_carried_or_its_table_is_refused(store: Store, change: Retype) -> None:
    retyped(store, change)


@pytest.mark.by_spark(alone=True)
def test_h51_a_retyped_column_where_spark_merges(store: Store) -> None:
    for change in RETYPES:
        if change.name in ("numeric grows", "text to array"):
            retyped(store.fresh(), change)


def retyped(store: Store, change: Retype) -> None:
    before, after = change.shapes()
    sink, shapes, old, new = store.open(), Shapes(before, after), Topic(before), Topic(after)
    sink.sink.apply(batch(old.upsert({"id": 1, "v": change.old}, at(1))), Shapes(before))
    held = rows(sink, before)
    events = batch(new.upsert({"id": 2, "v": change.new}, at(2)))
    if store.kind in change.held:
        for again in (sink, store.open()):
            with pytest.raises(CannotCarry, match=f"public.orders: column v is .*{change.after.type} in the source"):
                again.sink.apply(events, shapes)
        assert rows(sink, before) == held
        return
    assert sink.sink.apply(events, shapes).applied == 1
    assert sorted(rows(sink, after)) == ["1", "2"]
    plain = orjson.dumps(plain_row({"id": 2, "v": change.new}, after))
    assert live(sink, after)["2"] == canonical_row(plain, after)


@named([change for change in RETYPES if not change.held])
def test_h85_a_retyped_table_takes_rows_of_its_older_shape(store: Store, change: Retype) -> None:
    before, after = change.shapes()
    shapes, old, new = Shapes(before, after), Topic(before), Topic(after)
    first = store.open()
    first.sink.apply(batch(old.upsert({"id": 1, "v": change.old}, at(1))), Shapes(before))
    first.sink.apply(batch(new.upsert({"id": 2, "v": change.new}, at(2))), shapes)
    first.sink.show()
    again = store.open(parallel=True)
    done = again.sink.apply(batch(old.upsert({"id": 3, "v": change.old}, at(3))), shapes)
    assert (done.applied, done.refused) == (1, ())
    assert sorted(live(again, after)) == ["1", "2", "3"]


@named([change for change in RETYPES if change.held])
def test_h85_a_store_made_anew_takes_every_shape_of_a_topic(store: Store, change: Retype) -> None:
    before, after = change.shapes()
    sink, shapes, old, new = store.open(), Shapes(before, after), Topic(before), Topic(after)
    older = old.upsert({"id": 1, "v": change.old}, at(1))
    assert sink.sink.apply(batch(older), shapes).refused == ()
    done = sink.sink.apply(batch(new.upsert({"id": 2, "v": change.new}, at(2))), shapes)
    assert (done.applied, done.refused) == (1, ())
    assert sorted(rows(sink, after)) == ["1", "2"]
    plain = orjson.dumps(plain_row({"id": 2, "v": change.new}, after))
    assert live(sink, after)["2"] == canonical_row(plain, after)


def test_h51_a_table_that_a_store_cannot_carry_affects_no_other(store: Store) -> None:
    change = next(change for change in RETYPES if change.name == "text to int4")
    before, after = change.shapes()
    other = shape(column("id", "int8", key=1), column("n", "int4"), table="others")
    sink, shapes, old, beside = store.open(), Shapes(before, after, other), Topic(before), Topic(other)
    sink.sink.apply(batch(old.upsert({"id": 1, "v": "a"}, at(1))), Shapes(before))
    for number in (1, 2):
        sink.sink.apply(batch(beside.upsert({"id": number, "n": number}, at(number))), shapes)
    assert sorted(live(sink, other)) == ["1", "2"]


@pytest.mark.by_spark
def test_h85_a_later_column_appears_and_old_shapes_still_fit(store: Store) -> None:
    wider = shape(
        *ORDERS.columns,
        column("weight", "float8"),
        column("tags", "text", array=True),
        column("50% off", "int4"),
        version=2,
    )
    sink, shapes = store.open(), Shapes(ORDERS, wider)
    old, new = Topic(ORDERS), Topic(wider)
    sink.sink.apply(batch(old.upsert(order(1), at(1))), shapes)
    row = {**order(2), "weight": 1.5, "tags": ["a", None, "b"], "50% off": 7}
    sink.sink.apply(batch(new.upsert(row, at(2)), old.upsert(order(3), at(1))), shapes)
    expected = {"1": order(1), "2": row, "3": order(3)}
    assert live(sink, wider) == {k: canonical_row(orjson.dumps(v), wider) for k, v in expected.items()}
    restarted = store.open()
    restarted.sink.apply(batch(old.upsert(order(4), at(5))), shapes)
    assert len(live(restarted, wider)) == 4
