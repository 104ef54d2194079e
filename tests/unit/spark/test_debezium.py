"""Debezium's records translated for the queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import orjson
import pyarrow as pa
import pytest

from cdc.schema import TableSchema
from cdc.wire.records import Lot, Span
from spark.debezium import KnownEpochs, PositionsFell, SnapshotAgain, Translation
from spark.source import parse
from tests.unit.cdc.wire.debezium.recorded import Recorded, recorded
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
    parsed = parse(Translation(registry.version, KnownEpochs())(records(rows)))
    assert not parsed.unreadable
    assert parsed.events["op"].to_pylist() == ["r", "u", "d", "c", "t"]
    assert parsed.events["ver"].to_pylist() == [1] * 5
    assert parsed.events["pos"].to_pylist()[0] == f"{1:08x}{0:016x}{0:08x}"
    positions = [str(pos) for pos in parsed.events["pos"].to_pylist()]
    assert positions == sorted(positions)
    # One shape is asked for once in a run.
    assert registry.asked == 1


def test_a_record_without_a_schema_takes_the_topics_newest_version() -> None:
    parsed = parse(Translation(Registry().version, KnownEpochs())(records(recorded("sh_operations"))))
    assert set(parsed.events["ver"].to_pylist()) == {7}
    assert not parsed.unreadable


def test_order_across_batches_and_within_one_is_that_of_the_offsets() -> None:
    rows = recorded("snapshots")
    whole = Translation(Registry().version, KnownEpochs())(records(rows[::-1]))
    translate = Translation(Registry().version, KnownEpochs())
    ordered = sorted(rows, key=lambda row: (row.partition, row.offset))
    parts = [translate(records([row])) for row in ordered]
    assert pa.concat_tables(parts).equals(whole)


def test_a_record_that_is_none_of_debeziums_is_set_aside_in_its_own_words() -> None:
    foreign = Recorded("t", 0, 3, b'{"id":1}', b"what is this")
    parsed = parse(Translation(Registry().version, KnownEpochs())(records([foreign])))
    (one,) = parsed.unreadable
    assert (one.offset, one.value) == (3, b"what is this")
    assert one.reason.startswith("not a record of Debezium's")


def test_a_record_of_ours_is_left_as_it_is() -> None:
    headers: list[tuple[str, bytes | None]] = [("pos", b"0" * 32), ("op", b"c"), ("ver", b"3")]
    ours = Recorded("t", 0, 0, b'{"id":1}', b'{"after":{"id":1}}')
    parsed = parse(Translation(Registry().version, KnownEpochs())(records([ours], headers)))
    assert parsed.events["ver"].to_pylist() == [3]


def test_an_empty_batch_stays_empty() -> None:
    assert Translation(Registry().version, KnownEpochs())(records([])).num_rows == 0


def test_a_reset_while_the_sink_runs_is_a_new_epoch_in_the_next_batch() -> None:
    rows = [row for row in recorded("sh_operations") if row.value is not None]
    known = KnownEpochs()
    translate = Translation(Registry().version, known)
    before = parse(translate(records(rows[:3]))).events["pos"].to_pylist()
    known.state = known.state.begin({rows[0].topic: {0: rows[3].offset}})
    after = parse(translate(records(rows[3:]))).events["pos"].to_pylist()
    assert {str(pos)[:8] for pos in before} == {"00000001"}
    assert {str(pos)[:8] for pos in after} == {"00000002"}


class Earlier:
    """Records from before a run, as a reader of the log has them."""

    def __init__(self, rows: list[Recorded]) -> None:
        self._rows = rows
        self.asked: list[Span] = []

    def read(self, spans: Iterable[Span]) -> Iterator[Lot]:
        for span in spans:
            self.asked.append(span)
            found = [
                row
                for row in self._rows
                if (row.topic, row.partition) == span[:2] and max(0, span.start) <= row.offset < span.end
            ]
            if found:
                nothing: list[bytes | None] = [None] * len(found)
                offsets = [row.offset for row in found]
                keys, values = [row.key for row in found], [row.value for row in found]
                yield Lot(*span[:2], offsets, [0] * len(found), keys, values, nothing, nothing, nothing, {})

    def close(self) -> None:
        """Nothing is held."""


def binlog_row(offset: int, server: str, file: int) -> Recorded:
    source = {"connector": "mysql", "db": "s", "table": "t", "snapshot": "false", "gtid": f"{server}:{offset + 1}"}
    place = {"file": f"bin.{file:06d}", "pos": 4 + offset, "row": 0}
    value = orjson.dumps({"before": None, "after": {"id": 1}, "op": "u", "source": source | place})
    return Recorded("d.s.t", 0, offset, b'{"id":1}', value)


def test_h124_a_failover_while_the_sink_was_down_stops_it() -> None:
    """The first record of the run is the first of the other server: only what lies before it tells."""
    before, after = [binlog_row(n, "a1", 7) for n in range(3)], [binlog_row(3, "b2", 2)]
    known, earlier = KnownEpochs(), Earlier(before)
    with pytest.raises(PositionsFell, match=r"offset 3: .*another server \(b2\)"):
        Translation(Registry().version, known, earlier=lambda: earlier)(records(after))
    # It stays stopped, whatever it begins with, until another epoch begins.
    with pytest.raises(PositionsFell, match="offset 3"):
        Translation(Registry().version, known)(records([binlog_row(4, "b2", 2)]))
    known.state = known.state.begin({"d.s.t": {0: 4}})
    assert Translation(Registry().version, known)(records([binlog_row(4, "b2", 2)])).num_rows == 1


def test_h126_a_run_that_begins_with_a_flat_tombstone_deletes() -> None:
    flat = Recorded("d.s.t", 0, 200, b'{"id":1}', b'{"id":1,"v":"a"}')
    tombstone = flat._replace(offset=4000, value=None)
    earlier = Earlier([flat])
    translate = Translation(Registry().version, KnownEpochs(), earlier=lambda: earlier)
    parsed = parse(translate(records([tombstone])))
    assert parsed.events["op"].to_pylist() == ["d"]
    # The cleaner left none of the first ones, so more were asked for.
    assert [span.start for span in earlier.asked] == [3936, -2]


def snapshot_row(offset: int, marker: str, *, partition: int = 0, sequence: str = '[null,"90"]') -> Recorded:
    source = {"connector": "postgresql", "schema": "s", "table": "t", "snapshot": marker, "sequence": sequence}
    value = orjson.dumps({"before": None, "after": {"id": offset}, "op": "r", "source": source})
    return Recorded("d.s.t", partition, offset, b'{"id":%d}' % offset, value)


def test_h123_a_snapshot_that_begins_anew_begins_an_epoch() -> None:
    known = KnownEpochs()
    translate = Translation(Registry().version, known)
    translate(records([snapshot_row(0, "first"), snapshot_row(1, "true")]))
    assert (known.state.first(), known.state.latest) == (("d.s.t", 0, 0), 1)
    with pytest.raises(SnapshotAgain):
        translate(records([snapshot_row(2, "first"), snapshot_row(3, "true")]))
    assert (known.state.first(), known.state.latest, known.state.reread) == (("d.s.t", 0, 2), 2, 2)
    # The next run, and any other store's, finds it noted.
    rows = [snapshot_row(n, "first" if n in (0, 2) else "true") for n in range(4)]
    events = parse(Translation(Registry().version, known)(records(rows))).events
    assert [str(pos)[:8] for pos in events["pos"].to_pylist()] == ["00000001"] * 2 + ["00000002"] * 2
    assert known.state.latest == 2


@pytest.mark.parametrize("between", [{"marker": "last"}, {"marker": "false", "sequence": '["96","99"]'}])
def test_h123_a_snapshot_on_request_begins_no_epoch(between: dict[str, str]) -> None:
    """Another table may be read alone, or some rows: sweeping below it would take all others away."""
    known = KnownEpochs()
    rows = [snapshot_row(0, "first"), snapshot_row(5, **between, partition=1), snapshot_row(2, "first")]
    translate = Translation(Registry().version, known)
    translate(records(rows[:2]))
    translate(records(rows[2:]))
    assert known.state.latest == 1


@pytest.mark.parametrize(("reading", "epoch"), [(True, 2), (False, 1)])
def test_h123_behind_a_commit_the_connector_has_the_word(reading: bool, epoch: int) -> None:
    known = KnownEpochs()
    known.is_reading = reading
    translate = Translation(Registry().version, known)
    translate(records([snapshot_row(0, "first")]))
    with suppress(SnapshotAgain):
        translate(records([snapshot_row(2, "first", sequence='["4096","4100"]')]))
    assert known.state.latest == epoch


def test_h123_a_run_beyond_a_new_epochs_beginning_ends() -> None:
    known = KnownEpochs()
    translate = Translation(Registry().version, known)
    translate(records([snapshot_row(0, "true"), snapshot_row(7, "true")]))
    known.state = known.state.begin({"d.s.t": {0: 8}})
    translate(records([snapshot_row(8, "true")]))  # as after a reset: nothing of it was read
    known.state = known.state.begin({"d.s.t": {0: 6}})
    with pytest.raises(SnapshotAgain):
        translate(records([snapshot_row(9, "true")]))
