"""MongoDB's patches through a sink's query: translated, sorted out, applied, parked and tried again."""

from __future__ import annotations

import orjson
import pytest

from cdc.clock import ManualClock
from cdc.dead import DeadLetter, Parked, Why
from cdc.schema import TableSchema
from cdc.wire.debezium.mongodb_read import UNBROKEN_FROM
from sinks.memory import MemoryStore
from sinks.table_shapes import SchemaBook
from spark.apply import Rules, apply_sorted, compact, sort_out
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs
from spark.retry import apply_letters
from spark.source import parse
from tests.unit.cdc.wire.debezium.mongodb import ANNE, ANNE_MARIE, CUSTOMERS, RENAMED, TOPIC, envelope, key, patch
from tests.unit.spark.records import KafkaRecord, records_of

KEY = key("1004")
HOUR_MS = 3_600_000
BOOK = SchemaBook([CUSTOMERS])


class Customers:
    """Their one shape."""

    def version(self, _topic: str, shape: TableSchema | None, *, key: object = None) -> int:
        assert shape == CUSTOMERS
        return CUSTOMERS.version

    def rekeys(self, _topic: str, shape: TableSchema) -> bool:
        return shape.key_form != CUSTOMERS.key_form


class Query:
    """One run of a sink's query after another over one store; a batch per call."""

    def __init__(self, lag_s: float = 86_400.0) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.sink = self.store.open().sink
        self.letters: list[DeadLetter] = []
        self._lag_s = lag_s
        self.start()

    def start(self) -> None:
        self._translate = Translation(Customers(), KnownEpochs(), compaction_lag_s=self._lag_s, clock=self.clock)

    def record(self, offset: int, value: bytes, age_ms: int = 0) -> KafkaRecord:
        return KafkaRecord(KEY, value, None, offset, TOPIC, 0, self.clock.now_ns() // 1_000_000 - age_ms)

    def batch(self, *records: KafkaRecord) -> None:
        parked = Parked("", self.letters)
        sorted_out = sort_out(self._translate(records_of(*records)), Rules(book=BOOK, parked=parked.firsts()))
        self.letters += parked.fresh(apply_sorted(sorted_out, self.sink, BOOK).letters)

    def retry(self) -> dict[tuple[str, int, int], str]:
        return dict(apply_letters(self.letters, sink=self.sink, book=BOOK, holds={}))

    def document(self) -> object:
        held = self.store.table(CUSTOMERS.table).get("1004")
        return orjson.loads(held.row)["document"] if held is not None and held.row is not None else None

    def told(self) -> list[tuple[int, Why]]:
        return [(letter.offset, letter.why) for letter in self.letters]


def test_patches_of_several_batches_and_runs() -> None:
    query = Query()
    query.batch(
        query.record(0, envelope("r", after=ANNE, snapshot="true")), query.record(1, envelope("u", patch=RENAMED))
    )
    assert query.document() == orjson.loads(ANNE_MARIE)
    query.start()
    query.batch(query.record(2, envelope("u", patch=patch({"tags": ["a"]}, removed=["email"]))))
    query.batch(query.record(3, envelope("u", patch=patch({"tags.1": "b"}))))
    changed = {**orjson.loads(ANNE_MARIE), "tags": ["a", "b"]}
    del changed["email"]
    assert query.document() == changed
    assert query.letters == []


def test_h67_a_patch_without_a_document_parks_its_key() -> None:
    query = Query()
    query.batch(query.record(5, envelope("u", patch=RENAMED)))
    query.batch(query.record(6, envelope("u", patch=patch({"x": 1}))), query.record(7, envelope("r", after=ANNE)))
    query.batch(query.record(8, envelope("u", patch=RENAMED)))
    assert query.told() == [(5, Why.REFUSED), (6, Why.BEHIND), (7, Why.BEHIND), (8, Why.BEHIND)]
    assert "change_streams_update_full" in query.letters[0].reason
    assert query.document() is None
    assert query.retry() == {}
    assert query.document() == orjson.loads(ANNE_MARIE)


@pytest.mark.parametrize(("age_ms", "refused"), [(0, False), (23 * HOUR_MS, False), (25 * HOUR_MS, True)])
def test_a_sink_away_longer_than_the_cleaner_trusts_no_patch(age_ms: int, refused: bool) -> None:
    """Its next run begins behind offsets that it never saw: the cleaner may have taken a patch of this document."""
    query = Query()
    query.batch(query.record(0, envelope("c", after=ANNE), age_ms=100 * HOUR_MS))
    query.start()
    query.batch(query.record(9, envelope("u", patch=RENAMED), age_ms=age_ms))
    assert query.told() == ([(9, Why.REFUSED)] if refused else [])
    assert query.document() == orjson.loads(ANNE if refused else ANNE_MARIE)


def test_a_fresh_store_takes_old_patches_if_no_offset_is_missing() -> None:
    query = Query(lag_s=60.0)
    query.batch(query.record(0, envelope("c", after=ANNE), age_ms=HOUR_MS))
    query.batch(query.record(1, envelope("u", patch=RENAMED), age_ms=HOUR_MS))
    assert query.document() == orjson.loads(ANNE_MARIE)
    query.batch(query.record(3, envelope("u", patch=patch({"x": 1})), age_ms=HOUR_MS))
    assert query.told() == [(3, Why.REFUSED)]


def test_a_letter_holds_what_it_needs_to_be_tried_again() -> None:
    query = Query(lag_s=60.0)
    query.batch(query.record(3, envelope("u", patch=RENAMED), age_ms=HOUR_MS))
    value = orjson.loads(query.letters[0].value or b"")
    assert value["updateDescription"] == RENAMED
    assert UNBROKEN_FROM in value


def test_h38_a_key_whose_newest_is_a_patch_keeps_all_its_events() -> None:
    query = Query()
    translate = Translation(Customers(), KnownEpochs(), compaction_lag_s=60.0, clock=query.clock)
    values = [envelope("c", after=ANNE), envelope("u", patch=RENAMED), envelope("u", patch=patch({"x": 1}))]
    events = parse(translate(records_of(*(query.record(n, value) for n, value in enumerate(values))))).events
    assert set(compact(events, BOOK)["offset"].to_pylist()) == {0, 1, 2}
    assert compact(events.slice(0, 1), BOOK)["offset"].to_pylist() == [0]
