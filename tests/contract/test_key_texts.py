"""Keys that are easily taken for one another, or that a store may not take: each is a row of its own in every store."""

from __future__ import annotations

import random

import orjson
import pytest

from tests.contract.stores import Store, live, rows
from tests.contract.topics import Shapes, Topic, at, batch, column, shape

NAMED = shape(column("name", "text", key=1), column("part", "text", key=2), column("note", "text"))
ONE = shape(column("name", "text", key=1), column("note", "text"), table="named")
CHANCE = random.Random(3)
LONG = CHANCE.randbytes(2_560).hex()
"""No compression makes it short enough for an index of Postgres, nor does OpenSearch take it for an id."""
NAMES = (
    "", " ", "a", "A", "a ", " a", "a\n", "a:b", "a%3Ab", "%", "%25", "%null", "%empty", "all", "null", "\\", '"', "'",
    "é", "e\u0301", "\u2028", "x" * 512, "x" * 513, "x" * 514, "ü" * 256, "ü" * 257, LONG, f"{LONG}0", f"0{LONG}",
)  # fmt: skip


@pytest.mark.by_spark
def test_w1_w5_w8_each_text_is_a_key_of_its_own(store: Store) -> None:
    sink, topic, shapes = store.open(), Topic(ONE), Shapes(ONE)
    inserted = [topic.upsert({"name": name, "note": f"{n}"}, at(1)) for n, name in enumerate(NAMES)]
    done = sink.sink.apply(batch(inserted), shapes)
    assert (done.applied, list(done.refused)) == (len(NAMES), [])
    assert len(live(sink, ONE)) == len(NAMES)
    gone = NAMES[:6] + NAMES[-4:]
    deletes = [event for number, name in enumerate(gone) for event in topic.delete({"name": name}, at(2 + number))]
    sink.sink.apply(batch(deletes), shapes)
    notes = {orjson.loads(row)[1] for row in live(sink, ONE).values()}
    assert notes == {f"{n}" for n, name in enumerate(NAMES) if name not in gone}
    keys = sorted(rows(sink, ONE), key=len)
    for key in (*keys[:2], *keys[-2:]):
        found = sink.reader.get(ONE, key)
        assert found is not None
        assert found.key == key


def test_w1_the_columns_of_a_key_are_told_apart(store: Store) -> None:
    pairs = [("a", "b:c"), ("a:b", "c"), ("", "a"), ("a", ""), ("", ""), (":", ""), ("", ":"), ("%3A", ""), (LONG, "")]
    sink, topic = store.open(), Topic(NAMED)
    inserted = [topic.upsert({"name": a, "part": b, "note": None}, at(1)) for a, b in pairs]
    assert sink.sink.apply(batch(inserted), Shapes(NAMED)).applied == len(pairs)
    assert len(live(sink, NAMED)) == len(pairs)
