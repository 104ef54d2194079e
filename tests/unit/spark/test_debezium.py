"""Debezium's records translated for the queries."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc.epochs import EpochsState
from cdc.schema import TableSchema
from cdc.wire.debezium.falls import PositionsFell
from cdc.wire.records import Lot, Span
from spark.debezium_feed import SnapshotAgain, Translation
from spark.known_epochs import KnownEpochs
from spark.source import RECORD_SCHEMA, parse
from spark.translate import TaskNotes, TaskTranslation, TaskTranslator
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


class InTasks(Translation):
    """As the engine does where tasks read: one for each partition, which gets and reports plain data."""

    slice_rows = 1000

    def __call__(self, records: pa.Table) -> pa.Table:
        parts = [RECORD_SCHEMA.empty_table()]
        for first in range(0, records.num_rows, self.slice_rows):
            parts.append(self._slice(records.slice(first, self.slice_rows)))
        return pa.concat_tables(parts)

    def _slice(self, records: pa.Table) -> pa.Table:
        places = sorted({(row["topic"], row["partition"]) for row in records.to_pylist()})
        shares = [records.filter((pc.field("topic") == t) & (pc.field("partition") == p)) for t, p in places]
        spans = [
            Span(*place, pc.min(share["offset"]).as_py(), pc.max(share["offset"]).as_py() + 1)
            for place, share in zip(places, shares, strict=True)
        ]
        while True:
            plan = pickle.dumps(self.for_tasks(spans))
            tasks = [begun(plan) for _ in shares]
            done = [task(share) for task, share in zip(tasks, shares, strict=True)]
            told = sum((pickle.loads(pickle.dumps(task.told)) for task in tasks), start=TaskNotes())
            if not told.undecided:
                self.go_on(told)
                return pa.concat_tables(done)
            self.decide(told)


class InSlices(InTasks):
    """The same, a record at a time."""

    slice_rows = 1


def begun(plan: bytes) -> TaskTranslator:
    found: TaskTranslation = pickle.loads(plan)
    return found.begin()


@pytest.fixture(params=[Translation, InTasks])
def way(request: pytest.FixtureRequest) -> type[Translation]:
    """Where records are read: on the driver, or by tasks."""
    found: type[Translation] = request.param
    return found


def records(
    rows: list[Recorded], headers: list[tuple[str, bytes | None]] | None = None, times_ms: Iterable[int] = ()
) -> pa.Table:
    """As the reader of the log hands them over."""
    times = [*times_ms] or [1_700_000_000_000] * len(rows)
    return records_of(
        *(
            KafkaRecord(r.key, r.value, headers, r.offset, r.topic, r.partition, time)
            for r, time in zip(rows, times, strict=True)
        )
    )


RECORDED = ("key_schemas", "sh_operations", "sh_keys", "snapshots_schemas", "toast_schemas", "flat", "flat_schemas")


@pytest.mark.parametrize("way", [InTasks, InSlices])
@pytest.mark.parametrize("name", [*RECORDED, "mariadb", "sh_truncate_emitted"])
def test_h133_tasks_and_driver_read_alike_however_slices_are_cut(name: str, way: type[Translation]) -> None:
    """A reader goes on in another process where the slice before ended: order, shapes, tombstones."""
    rows = sorted(recorded(name), key=lambda row: (row.topic, row.partition, row.offset))
    registry = Registry()
    here = Translation(registry.version, KnownEpochs())(records(rows))
    assert way(registry.version, KnownEpochs())(records(rows)).equals(here)
    assert here.num_rows


def test_h133_a_slice_that_cannot_be_decided_leaves_no_trace() -> None:
    """It runs again with the readers as they were: nothing of it counts twice."""
    rows = recorded("key_schemas")
    translation = Translation(Registry().version, KnownEpochs())
    span = [Span(rows[0].topic, 0, rows[0].offset, rows[-1].offset + 1)]
    first = translation.for_tasks(span)
    task = first.begin()
    task(records(rows))
    assert task.told.undecided
    translation.decide(task.told)
    assert translation.for_tasks(span).readers == first.readers


def test_records_get_the_three_headers_and_settled_tombstones_go(way: type[Translation]) -> None:
    rows = recorded("key_schemas")
    registry = Registry()
    parsed = parse(way(registry.version, KnownEpochs())(records(rows)))
    assert not parsed.unreadable
    assert parsed.events["op"].to_pylist() == ["r", "u", "d", "c", "t"]
    assert parsed.events["ver"].to_pylist() == [1] * 5
    assert parsed.events["pos"].to_pylist()[0] == f"{1:08x}{0:016x}{0:08x}"
    positions = [str(pos) for pos in parsed.events["pos"].to_pylist()]
    assert positions == sorted(positions)
    # One shape is asked for once in a run.
    assert registry.asked == 1


def test_a_record_without_a_schema_has_the_topics_newest_version(way: type[Translation]) -> None:
    parsed = parse(way(Registry().version, KnownEpochs())(records(recorded("sh_operations"))))
    assert set(parsed.events["ver"].to_pylist()) == {7}
    assert not parsed.unreadable


def test_order_within_and_across_batches_is_that_of_offsets(way: type[Translation]) -> None:
    rows = recorded("snapshots")
    whole = way(Registry().version, KnownEpochs())(records(rows[::-1]))
    translate = way(Registry().version, KnownEpochs())
    ordered = sorted(rows, key=lambda row: (row.partition, row.offset))
    parts = [translate(records([row])) for row in ordered]
    assert pa.concat_tables(parts).equals(whole)


def test_a_record_that_is_not_debeziums_becomes_a_letter(way: type[Translation]) -> None:
    foreign = Recorded("t", 0, 3, b'{"id":1}', b"what is this")
    parsed = parse(way(Registry().version, KnownEpochs())(records([foreign])))
    (one,) = parsed.unreadable
    assert (one.offset, one.value) == (3, b"what is this")
    assert one.reason.startswith("not a record of Debezium's")


def test_a_record_of_ours_is_left_as_it_is(way: type[Translation]) -> None:
    headers: list[tuple[str, bytes | None]] = [("pos", b"0" * 32), ("op", b"c"), ("ver", b"3")]
    ours = Recorded("t", 0, 0, b'{"id":1}', b'{"after":{"id":1}}')
    parsed = parse(way(Registry().version, KnownEpochs())(records([ours], headers)))
    assert parsed.events["ver"].to_pylist() == [3]


def test_an_empty_batch_stays_empty(way: type[Translation]) -> None:
    assert way(Registry().version, KnownEpochs())(records([])).num_rows == 0


def test_a_reset_while_the_sink_runs_begins_an_epoch(way: type[Translation]) -> None:
    rows = [row for row in recorded("sh_operations") if row.value is not None]
    known = KnownEpochs()
    translate = way(Registry().version, known)
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


def test_h124_a_failover_while_the_sink_was_down_stops_it(way: type[Translation]) -> None:
    """The first record of the run is the first of the other server: only what lies before it tells."""
    before, after = [binlog_row(n, "a1", 7) for n in range(3)], [binlog_row(3, "b2", 2)]
    known, earlier = KnownEpochs(), Earlier(before)
    with pytest.raises(PositionsFell, match=r"offset 3: .*another server \(b2\)"):
        way(Registry().version, known, earlier=lambda: earlier)(records(after))
    # It stays stopped, whatever it begins with, until another epoch begins.
    with pytest.raises(PositionsFell, match="offset 3"):
        way(Registry().version, known)(records([binlog_row(4, "b2", 2)]))
    known.state = known.state.begin({"d.s.t": {0: 4}})
    assert way(Registry().version, known)(records([binlog_row(4, "b2", 2)])).num_rows == 1


def test_h124_another_server_with_higher_positions_is_heard(
    way: type[Translation], caplog: pytest.LogCaptureFixture
) -> None:
    """Its changes are newer for every store, and no store stops. It is told once, and noted."""
    rows = [binlog_row(n, "a1", 7) for n in range(3)] + [binlog_row(n, "b2", 9) for n in range(3, 6)]
    known = KnownEpochs()
    translate = way(Registry().version, known)
    with caplog.at_level("WARNING"):
        assert translate(records(rows[:5])).num_rows == 5
        assert translate(records(rows[5:])).num_rows == 1
    assert [(one.message, one.was, one.now) for one in caplog.records] == [  # type: ignore[attr-defined]
        ("source_server_changed", "a1", "b2")
    ]
    said = "changes are of the server b2 since offset 3 of partition 0 of d.s.t, and were of a1 before"
    assert (known.state.moved, known.state.fell) == (said, "")
    assert known.state.begin({}).moved == "", "another epoch begins with the server that it has"


def test_h126_a_run_that_begins_with_a_flat_tombstone_deletes(way: type[Translation]) -> None:
    flat = Recorded("d.s.t", 0, 200, b'{"id":1}', b'{"id":1,"v":"a"}')
    tombstone = flat._replace(offset=4000, value=None)
    earlier = Earlier([flat])
    translate = way(Registry().version, KnownEpochs(), earlier=lambda: earlier)
    parsed = parse(translate(records([tombstone])))
    assert parsed.events["op"].to_pylist() == ["d"]
    # The cleaner left none of the first ones, so more were asked for.
    assert [span.start for span in earlier.asked] == [3936, -2]


def snapshot_row(offset: int, marker: str, *, partition: int = 0, sequence: str = '[null,"90"]') -> Recorded:
    source = {"connector": "postgresql", "schema": "s", "table": "t", "snapshot": marker, "sequence": sequence}
    value = orjson.dumps({"before": None, "after": {"id": offset}, "op": "r", "source": source})
    return Recorded("d.s.t", partition, offset, b'{"id":%d}' % offset, value)


def test_h123_a_snapshot_that_begins_anew_begins_an_epoch(way: type[Translation]) -> None:
    known = KnownEpochs()
    translate = way(Registry().version, known)
    translate(records([snapshot_row(0, "first"), snapshot_row(1, "true")]))
    assert (known.state.first(), known.state.latest) == (("d.s.t", 0, 0), 1)
    with pytest.raises(SnapshotAgain):
        translate(records([snapshot_row(2, "first"), snapshot_row(3, "true")]))
    assert (known.state.first(), known.state.latest, known.state.reread) == (("d.s.t", 0, 2), 2, 2)
    # The next run, and any other store's, finds it noted.
    rows = [snapshot_row(n, "first" if n in (0, 2) else "true") for n in range(4)]
    events = parse(way(Registry().version, known)(records(rows))).events
    assert [str(pos)[:8] for pos in events["pos"].to_pylist()] == ["00000001"] * 2 + ["00000002"] * 2
    assert known.state.latest == 2


@pytest.mark.parametrize("between", [{"marker": "last"}, {"marker": "false", "sequence": '["96","99"]'}])
def test_h123_a_snapshot_on_request_begins_no_epoch(way: type[Translation], between: dict[str, str]) -> None:
    """Another table may be read alone, or some rows: sweeping below it would take all others away."""
    known = KnownEpochs()
    rows = [snapshot_row(0, "first"), snapshot_row(5, **between, partition=1), snapshot_row(2, "first")]
    translate = way(Registry().version, known)
    translate(records(rows[:2], times_ms=(1, 5)))
    translate(records(rows[2:], times_ms=(9,)))
    assert known.state.latest == 1


@pytest.mark.parametrize("between", [{"marker": "last"}, {"marker": "false", "sequence": '["96","99"]'}])
@pytest.mark.parametrize("partition", [0, 1])
def test_h221_a_whole_snapshot_that_nobody_asked_for_is_a_first(
    way: type[Translation], between: dict[str, str], partition: int
) -> None:
    """It was read to its end, and its worker ended before the offset behind it was stored. No order has fallen."""
    known = KnownEpochs()
    known.is_asked = False
    rows = [snapshot_row(0, "first"), snapshot_row(1, **between, partition=partition), snapshot_row(2, "first")]
    translate = way(Registry().version, known)
    translate(records(rows[:2], times_ms=(1, 5)))
    with pytest.raises(SnapshotAgain):
        translate(records(rows[2:], times_ms=(9,)))
    assert (known.state.latest, known.state.first(), known.state.fell) == (2, ("d.s.t", 0, 2), "")


@pytest.mark.parametrize(("asked", "repeats", "epoch"), [(False, True, 2), (None, True, 1), (False, False, 1)])
def test_h226_a_later_table_that_is_read_anew_begins_an_epoch(
    way: type[Translation], asked: bool | None, repeats: bool, epoch: int
) -> None:
    """Whoever reads this table alone never meets the row that began the snapshot."""
    known = KnownEpochs()
    known.is_asked, known.repeats = asked, repeats
    rows = [snapshot_row(3, "true"), snapshot_row(4, "first_in_data_collection"), snapshot_row(5, "true")]
    with suppress(SnapshotAgain):
        way(Registry().version, known)(records(rows))
    assert known.state.latest == epoch
    assert known.state.epoch("d.s.t", 0, 3) == 1
    assert known.state.epoch("d.s.t", 0, 4) == epoch


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize(("over_ms", "epoch"), [(5, 1), (9, 2)])
def test_h133_which_partition_is_read_first_decides_nothing(
    way: type[Translation], order: tuple[int, ...], over_ms: int, epoch: int
) -> None:
    """The end of a snapshot in another partition is the end of the one that was written before it."""
    rows = [snapshot_row(0, "first"), snapshot_row(2, "first"), snapshot_row(5, "last", partition=1)]
    times_ms = (1, 7, over_ms)
    known = KnownEpochs()
    translate = way(Registry().version, known)
    with suppress(SnapshotAgain):
        translate(records([rows[n] for n in order], times_ms=[times_ms[n] for n in order]))
    assert known.state.latest == epoch


@pytest.mark.parametrize(("asked", "reading", "epoch"), [(True, False, 1), (True, True, 2), (None, False, 2)])
def test_h221_a_signal_says_more_than_that_no_commit_came(
    way: type[Translation], asked: bool | None, reading: bool, epoch: int
) -> None:
    """On an idle source a snapshot on request stands behind no commit either, and its end may be another sink's."""
    known = KnownEpochs()
    known.is_asked, known.is_reading = asked, reading
    with suppress(SnapshotAgain):
        way(Registry().version, known)(records([snapshot_row(0, "first"), snapshot_row(2, "first")], times_ms=(1, 9)))
    assert known.state.latest == epoch


@pytest.mark.parametrize(("reading", "epoch"), [(True, 2), (False, 1)])
def test_h123_behind_a_commit_the_connector_has_the_word(way: type[Translation], reading: bool, epoch: int) -> None:
    known = KnownEpochs()
    known.is_reading = reading
    translate = way(Registry().version, known)
    translate(records([snapshot_row(0, "first")]))
    with suppress(SnapshotAgain):
        translate(records([snapshot_row(2, "first", sequence='["4096","4100"]')]))
    assert known.state.latest == epoch


@pytest.mark.parametrize(("begins", "rekeyed"), [(False, True), (True, False)])
def test_h230_another_key_is_noted_with_its_records_epoch(way: type[Translation], begins: bool, rekeyed: bool) -> None:
    """Where another epoch has begun since, what is under the former key is swept there."""
    rows = [row for row in sorted(recorded("key_schemas"), key=lambda row: row.offset) if row.partition == 0]
    rows = [row for row in rows if row.topic == rows[0].topic]
    begun = EpochsState().begin({rows[0].topic: {0: rows[-1].offset + 1}})
    known = KnownEpochs(begun if begins else EpochsState())
    way(Registry().version, known, rekeys=lambda _topic, _shape: True)(records(rows))
    assert known.state.keys == {rows[0].topic: 1}
    assert bool(known.state.rekeyed()) is rekeyed
    without = KnownEpochs()
    way(Registry().version, without)(records(rows))
    assert without.state.keys == {}


def test_h123_a_run_beyond_a_new_epochs_beginning_ends(way: type[Translation]) -> None:
    known = KnownEpochs()
    translate = way(Registry().version, known)
    translate(records([snapshot_row(0, "true"), snapshot_row(7, "true")]))
    known.state = known.state.begin({"d.s.t": {0: 8}})
    translate(records([snapshot_row(8, "true")]))  # as after a reset: nothing of it was read
    known.state = known.state.begin({"d.s.t": {0: 6}})
    with pytest.raises(SnapshotAgain):
        translate(records([snapshot_row(9, "true")]))
