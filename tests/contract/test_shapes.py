"""Tables whose shape changes, over every store."""

from __future__ import annotations

import orjson

from cdc.canonical import canonical_row
from tests.contract.orders import order
from tests.contract.stores import Store, live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape


def test_h85_a_column_added_later_appears_and_old_shapes_still_fit(store: Store) -> None:
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
