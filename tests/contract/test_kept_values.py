"""Values come back as they were, to the last digit, from every store."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from sinks.contract.batch import events_of
from tests.contract.orders import SHAPES, order
from tests.contract.stores import Store, live
from tests.contract.topics import ORDERS, Shapes, Topic, at, column, shape
from tests.contract.values import EVERYTHING, HARD_ROWS
from tests.single_rows import canonical_row, plain_row


@pytest.mark.by_spark("delta-spark")
def test_spark_hands_over_large_strings_and_many_chunks(store: Store) -> None:
    sink, topic = store.open(), Topic()
    for number in range(10):
        topic.upsert(order(number), at(number))
    table = events_of(topic.events)
    chunked = pa.concat_tables([table.slice(n, 1) for n in range(10)])
    large = chunked.cast(pa.schema([f.with_type(_large(f.type)) for f in chunked.schema]))
    assert sink.sink.apply(large, SHAPES).applied == 10
    assert len(live(sink, ORDERS)) == 10


def _large(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


@pytest.mark.by_spark
def test_h31_h32_h33_h39_rows_keep_their_values(store: Store) -> None:
    """The plain values of every kind come back, to the last digit."""
    sink, topic = store.open(), Topic(EVERYTHING)
    for number, row in enumerate(HARD_ROWS):
        topic.upsert({"id": number, **row}, at(number))
    done = sink.sink.apply(events_of(topic.events), Shapes(EVERYTHING))
    assert done.refused == ()
    found = live(sink, EVERYTHING)
    for number, row in enumerate(HARD_ROWS):
        plain = orjson.dumps(plain_row({"id": number, **row}, EVERYTHING))
        assert found[str(number)] == canonical_row(plain, EVERYTHING), row


@pytest.mark.by_spark
def test_texts_that_are_code_elsewhere_are_data(store: Store) -> None:
    """In keys, values, names of columns and of the table: no quote ends what stands around it."""
    words = (
        "'; drop table x; --",
        '"; drop table x; --',
        "\\'; drop table x; --",
        "${env:HOME} {{7*7}} %s {0} :x ?",
        "]] redis.call('FLUSHALL') --",
        "*:1 ../../x/%2e%2e",
        '{"script": {"source": "ctx._source.clear()"}}',
    )
    strange = shape(column("k'\"; --", "text", key=1), column("v\"'}{", "text"), table='o"; drop table x; --')
    sink, plain, topic = store.open(), Topic(), Topic(strange)
    plain.upsert(order(1), at(1))
    names = [one.name for one in strange.columns]
    for number, word in enumerate(words):
        topic.upsert(dict(zip(names, (word, word[::-1]), strict=True)), at(number))
    done = sink.sink.apply(events_of([*plain.events, *topic.events]), Shapes(ORDERS, strange))
    assert done.refused == ()
    assert sorted(orjson.loads(row) for row in live(sink, strange).values()) == sorted([w, w[::-1]] for w in words)
    assert len(live(sink, ORDERS)) == 1
