"""Debezium's records translated for the queries."""

from __future__ import annotations

import pyarrow as pa

from cdc.epochs import EpochsState
from cdc.schema import TableSchema
from spark.debezium import Translation
from spark.source import parse
from tests.unit.cdc.debezium.recorded import Recorded, recorded
from tests.unit.spark.records import KafkaRecord, records_of


class Registry:
    """Numbers shapes from 1; counts how often it is asked."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, TableSchema | None], int] = {}
        self.asked = 0

    def version(self, topic: str, shape: TableSchema | None) -> int:
        self.asked += 1
        return 7 if shape is None else self.known.setdefault((topic, shape), len(self.known) + 1)


def records(rows: list[Recorded], headers: list[tuple[str, bytes | None]] | None = None) -> pa.Table:
    """As Spark's Kafka source hands them over."""
    return records_of(*(KafkaRecord(r.key, r.value, headers, r.offset, r.topic, r.partition) for r in rows))


def test_records_get_the_three_headers_and_settled_tombstones_go() -> None:
    rows = recorded("key_schemas")
    registry = Registry()
    parsed = parse(Translation(registry.version, EpochsState)(records(rows)))
    assert not parsed.unreadable
    assert parsed.events["op"].to_pylist() == ["r", "u", "d", "c", "t"]
    assert parsed.events["ver"].to_pylist() == [1] * 5
    assert parsed.events["pos"].to_pylist()[0] == f"{1:08x}{0:016x}{0:08x}"
    positions = [str(pos) for pos in parsed.events["pos"].to_pylist()]
    assert positions == sorted(positions)
    # One shape is asked for once in a run.
    assert registry.asked == 1


def test_a_record_without_a_schema_takes_the_topics_newest_version() -> None:
    parsed = parse(Translation(Registry().version, EpochsState)(records(recorded("sh_operations"))))
    assert set(parsed.events["ver"].to_pylist()) == {7}
    assert not parsed.unreadable


def test_order_across_batches_and_within_one_is_that_of_the_offsets() -> None:
    rows = recorded("snapshots")
    whole = Translation(Registry().version, EpochsState)(records(rows[::-1]))
    translate = Translation(Registry().version, EpochsState)
    ordered = sorted(rows, key=lambda row: (row.partition, row.offset))
    parts = [translate(records([row])) for row in ordered]
    assert pa.concat_tables(parts).equals(whole)


def test_a_record_that_is_none_of_debeziums_is_set_aside_in_its_own_words() -> None:
    foreign = Recorded("t", 0, 3, b'{"id":1}', b"what is this")
    parsed = parse(Translation(Registry().version, EpochsState)(records([foreign])))
    (one,) = parsed.unreadable
    assert (one.offset, one.value) == (3, b"what is this")
    assert one.reason.startswith("not a record of Debezium's")


def test_a_record_of_ours_is_left_as_it_is() -> None:
    headers: list[tuple[str, bytes | None]] = [("pos", b"0" * 32), ("op", b"c"), ("ver", b"3")]
    ours = Recorded("t", 0, 0, b'{"id":1}', b'{"after":{"id":1}}')
    parsed = parse(Translation(Registry().version, EpochsState)(records([ours], headers)))
    assert parsed.events["ver"].to_pylist() == [3]


def test_an_empty_batch_stays_empty() -> None:
    assert Translation(Registry().version, EpochsState)(records([])).num_rows == 0


def test_a_reset_while_the_sink_runs_is_a_new_epoch_in_the_next_batch() -> None:
    rows = [row for row in recorded("sh_operations") if row.value is not None]
    known = [EpochsState()]
    translate = Translation(Registry().version, lambda: known[-1])
    before = parse(translate(records(rows[:3]))).events["pos"].to_pylist()
    known.append(known[-1].begin({rows[0].topic: {0: rows[3].offset}}))
    after = parse(translate(records(rows[3:]))).events["pos"].to_pylist()
    assert {str(pos)[:8] for pos in before} == {"00000001"}
    assert {str(pos)[:8] for pos in after} == {"00000002"}
