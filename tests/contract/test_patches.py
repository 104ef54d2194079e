"""Patches of MongoDB's, over every store: each makes the next document of the one that is held, once and in order.

Records are those of :mod:`tests.unit.cdc.wire.debezium.mongodb`, read as the sinks' queries read them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from cdc.wire.debezium.reading import DebeziumChange, PartitionReader
from sinks.batch import Event
from sinks.port import OpenSink
from tests.contract.stores import Store, live, rows
from tests.contract.topics import Shapes, batch
from tests.single_rows import canonical_row
from tests.unit.cdc.wire.debezium.mongodb import (
    ANNE,
    ANNE_MARIE,
    CREATED,
    CUSTOMERS,
    RENAMED,
    TOPIC,
    envelope,
    key,
    patch,
)

SHAPES = Shapes(CUSTOMERS)
ONE = "1004"
KEY = key('{"$numberLong": "1004"}')


class Collection:
    """A collection's topic, read in the order of its offsets. ``kept``: its records are too young for the cleaner."""

    def __init__(self, *, kept: bool = True) -> None:
        self._reader = PartitionReader(TOPIC, 0)
        self._kept = kept
        self._next = 0

    def record(self, op: str, *, key: bytes = KEY, **members: Any) -> Event:
        value = envelope(op, **members)
        found = self._reader.read(self._next, key, value, kept=self._kept)
        assert isinstance(found, DebeziumChange)
        self._next += 1
        return Event(TOPIC, 0, self._next - 1, found.key, found.value, found.pos.text(), found.op, found.ver)

    def patch(
        self, updated: Mapping[str, Any] | None = None, removed: list[str] | None = None,
        cut: Mapping[str, int] | None = None,
    ) -> Event:  # fmt: skip
        return self.record("u", patch=patch(updated, removed, cut))

    def compacted(self, records: int) -> None:
        """The cleaner takes what would come next."""
        self._next += records


def shown(sink: OpenSink) -> dict[str, bytes]:
    return live(sink, CUSTOMERS)


def stored(document: str | Mapping[str, Any], identity: str = ONE) -> dict[str, bytes]:
    """What a store shows that holds this document alone."""
    text = document if isinstance(document, str) else orjson.dumps(document).decode()
    row = orjson.dumps({"id": identity, "document": orjson.Fragment(text)})
    return {identity: canonical_row(row, CUSTOMERS)}


def apply(sink: OpenSink, *events: Event) -> tuple[int, int, int]:
    """(applied, stale, refused)"""
    done = sink.sink.apply(batch(*events), SHAPES)
    return done.applied, done.stale, len(done.refused)


def test_the_documented_update_is_applied_to_the_stored_document(store: Store) -> None:
    sink, topic = store.open(), Collection()
    apply(sink, topic.record("r", after=ANNE, snapshot="true"))
    assert apply(sink, topic.record("u", patch=RENAMED)) == (1, 0, 0)
    assert shown(sink) == stored(ANNE_MARIE)


def test_names_indexes_and_extended_json(store: Store) -> None:
    document = {
        "_id": {"$numberLong": "1004"},
        "at": {"$date": 1489000000000},
        "tags": ["a", "b", "c", "d"],
        "lines": [{"sku": "x", "n": {"$numberLong": "1"}}, {"sku": "y"}],
        "a.b": 1,
        "map": {"0": "zero", "": None},
        "far": 1e300,
        "gone": {"deep": [1]},
    }
    sink, topic = store.open(), Collection()
    apply(sink, topic.record("c", after=orjson.dumps(document).decode()))
    changed = topic.patch(
        {
            "at": {"$date": 1489000000001},
            "tags.1": "B",
            "lines.0.n": {"$numberLong": "9007199254740993"},
            "lines.2": {"sku": "z", "price": {"$numberDecimal": "1.10"}},
            "map.0": "nought",
            "a.b": 2,
            "new": {"x.y": [-0.0, 1e-7]},
        },
        removed=["gone.deep", "lines.1.sku"],
        cut={"tags": 2},
    )
    assert apply(sink, changed) == (1, 0, 0)
    expected = {
        "_id": {"$numberLong": "1004"},
        "at": {"$date": 1489000000001},
        "tags": ["a", "B"],
        "lines": [
            {"sku": "x", "n": {"$numberLong": "9007199254740993"}},
            {},
            {"sku": "z", "price": {"$numberDecimal": "1.10"}},
        ],
        "a.b": 2,
        "map": {"0": "nought", "": None},
        "far": 1e300,
        "gone": {},
        "new": {"x.y": [-0.0, 1e-7]},
    }
    assert shown(sink) == stored(expected)


def test_patches_of_a_batch_are_applied_in_the_order_of_pos(store: Store) -> None:
    sink, topic = store.open(), Collection()
    made = topic.record("c", after='{"l":[]}')
    pushes = [topic.patch({f"l.{n}": n}) for n in range(4)]
    cut = topic.patch(cut={"l": 3})
    assert apply(sink, cut, *pushes[::-1], made) == (1, 0, 0)
    assert shown(sink) == stored({"l": [0, 1, 2]})


def test_a_patch_at_or_below_the_rows_pos_is_not_applied_again(store: Store) -> None:
    sink, topic = store.open(), Collection()
    made, first, second = topic.record("c", after='{"n":0}'), topic.patch({"n": 1}), topic.patch({"n": 2, "m": 2})
    apply(sink, made, first)
    apply(sink, second)
    before = rows(sink, CUSTOMERS)
    assert apply(sink, first) == (0, 1, 0)
    assert apply(sink, second) == (0, 1, 0)
    assert apply(sink, made, first, second)[2] == 0
    assert rows(sink, CUSTOMERS) == before
    third = topic.patch({"k": 3}, removed=["m"])
    assert apply(sink, first, second, third) == (1, 0, 0)
    assert shown(sink) == stored({"n": 2, "k": 3})


def _empty() -> list[dict[str, Any]]:
    return [{"l": [0], "n": {}} for _ in range(3)]


@pytest.mark.parametrize("seed", range(3))
def test_any_batches_replayed_from_anywhere_end_as_the_source(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    topic, states = Collection(), _empty()
    events = [topic.record("c", key=key(f'"{n}"'), after=orjson.dumps(one).decode()) for n, one in enumerate(states)]
    for step in range(24):
        which = chance.randrange(3)
        state, name = states[which], f"f{chance.randrange(3)}"
        match chance.randrange(4):
            case 0:
                told = patch({f"l.{len(state['l'])}": step})
                state["l"].append(step)
            case 1 if state["l"]:
                told = patch(cut={"l": len(state["l"]) - 1})
                del state["l"][-1]
            case 2 if name in state["n"]:
                told = patch(removed=[f"n.{name}"])
                del state["n"][name]
            case _:
                told = patch({f"n.{name}": step})
                state["n"][name] = step
        events.append(topic.record("u", key=key(f'"{which}"'), patch=told))
    sink = store.open()
    cuts = sorted(chance.sample(range(1, len(events)), 4))
    pieces = [events[start:stop] for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]
    for number, piece in enumerate(pieces):
        assert apply(sink, *piece)[2] == 0
        again = pieces[chance.randrange(number + 1)]
        assert apply(sink, *chance.sample(again, len(again)))[2] == 0
    expected: dict[str, bytes] = {}
    for number, state in enumerate(states):
        expected |= stored(state, str(number))
    assert shown(sink) == expected


def test_a_patch_without_a_document_is_refused_until_one_comes(store: Store) -> None:
    sink, topic = store.open(), Collection()
    lost = topic.record("u", patch=RENAMED)
    done = sink.sink.apply(batch(lost), SHAPES)
    assert [(refused.key, refused.value) for refused in done.refused] == [(lost.key, lost.value)]
    assert "change_streams_update_full" in done.refused[0].reason
    assert rows(sink, CUSTOMERS) == {}
    assert apply(sink, lost, topic.record("r", after=ANNE, snapshot="incremental")) == (1, 0, 0)
    assert apply(sink, topic.record("u", patch=RENAMED)) == (1, 0, 0)
    assert shown(sink) == stored(ANNE_MARIE)


@pytest.mark.parametrize("op", ["r", "c", "u"])
def test_a_document_is_applied_before_the_patches_below_it(store: Store, op: str) -> None:
    sink, topic = store.open(), Collection()
    apply(sink, topic.record("c", after=CREATED))
    first, whole, last = topic.patch({"x": 1}), topic.record(op, after=ANNE), topic.record("u", patch=RENAMED)
    assert apply(sink, first, whole, last) == (1, 0, 0)
    assert shown(sink) == stored(ANNE_MARIE)


def test_a_patch_behind_a_delete_is_refused(store: Store) -> None:
    sink, topic = store.open(), Collection()
    apply(sink, topic.record("c", after=ANNE), topic.record("d"))
    assert apply(sink, topic.record("u", patch=RENAMED)) == (0, 0, 1)
    assert apply(sink, topic.record("c", after=CREATED), topic.record("d"), topic.patch({"a": 1})) == (0, 0, 1)
    assert shown(sink) == {}


def test_an_old_patch_is_refused_if_one_before_may_be_compacted(store: Store) -> None:
    """Offsets 2 and 3 are gone: one may have been a patch of this document."""
    sink, topic = store.open(), Collection(kept=False)
    apply(sink, topic.record("c", after='{"n":0}'), topic.patch({"n": 1}))
    topic.compacted(2)
    lost = topic.patch({"m": 4})
    done = sink.sink.apply(batch(lost), SHAPES)
    assert ["lost one" in refused.reason for refused in done.refused] == [True]
    assert shown(sink) == stored({"n": 1})
    assert apply(sink, topic.record("u", after=ANNE), topic.record("u", patch=RENAMED)) == (1, 0, 0)
    assert shown(sink) == stored(ANNE_MARIE)


@pytest.mark.parametrize("kept", [False, True])
def test_a_patch_is_sound_if_nothing_is_missing_or_it_is_young(store: Store, kept: bool) -> None:
    sink, topic = store.open(), Collection(kept=kept)
    apply(sink, topic.record("c", after='{"n":0}'))
    topic.compacted(3 if kept else 0)
    assert apply(sink, topic.patch({"n": 1})) == (1, 0, 0)
    assert shown(sink) == stored({"n": 1})


def test_a_misfit_patch_is_refused_unless_a_later_one_settles_it(store: Store) -> None:
    sink, topic = store.open(), Collection()
    apply(sink, topic.record("c", after='{"n":0}'))
    misfit = topic.patch({"a.b": 1})
    assert apply(sink, misfit) == (0, 0, 1)
    assert shown(sink) == stored({"n": 0})
    assert apply(sink, misfit, topic.patch({"n": 5}, removed=["a"])) == (1, 0, 0)
    assert shown(sink) == stored({"n": 5})


def test_a_truncate_takes_the_document_that_a_patch_needs(store: Store) -> None:
    sink, topic = store.open(), Collection()
    made = topic.record("c", after=ANNE)
    floor = topic.record("d")._replace(key=b'{"__truncate":"inventory.customers"}', op="t")
    assert apply(sink, made, floor, topic.record("u", patch=RENAMED))[2] == 1
    assert shown(sink) == {}


def others(documents: Sequence[str], topic: Collection) -> list[Event]:
    return [topic.record("c", key=key(f'"{n}"'), after=text) for n, text in enumerate(documents)]


def test_other_documents_of_the_batch_flow(store: Store) -> None:
    sink, topic = store.open(), Collection()
    lost = topic.record("u", patch=RENAMED)
    assert apply(sink, lost, *others([ANNE, CREATED], topic)) == (2, 0, 1)
    assert shown(sink) == stored(ANNE, "0") | stored(CREATED, "1")
