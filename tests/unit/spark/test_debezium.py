"""Debezium's records translated for the queries."""

from __future__ import annotations

from contextlib import suppress

import orjson
import pyarrow as pa
import pytest

from cdc.wire.debezium.falls import PositionsFell
from cdc.wire.records import Span
from spark.debezium_feed import Translation
from spark.known_epochs import KnownEpochs, SnapshotAgain
from spark.source import parse
from tests.unit.cdc.wire.debezium.recorded import Recorded, recorded
from tests.unit.spark.translating import Earlier, InSlices, InTasks, Registry, records


@pytest.fixture(params=[Translation, InTasks])
def way(request: pytest.FixtureRequest) -> type[Translation]:
    """Where records are read: on the driver, or by tasks."""
    found: type[Translation] = request.param
    return found


RECORDED = ("key_schemas", "sh_operations", "sh_keys", "snapshots_schemas", "toast_schemas", "flat", "flat_schemas")


@pytest.mark.parametrize("way", [InTasks, InSlices])
@pytest.mark.parametrize("name", [*RECORDED, "mariadb", "sh_truncate_emitted"])
def test_h133_tasks_and_driver_read_alike_however_slices_are_cut(name: str, way: type[Translation]) -> None:
    """A reader goes on in another process where the slice before ended: order, shapes, tombstones."""
    rows = sorted(recorded(name), key=lambda row: (row.topic, row.partition, row.offset))
    registry = Registry()
    here = Translation(registry, KnownEpochs())(records(rows))
    assert way(registry, KnownEpochs())(records(rows)).equals(here)
    assert here.num_rows


def test_h133_a_slice_that_cannot_be_decided_leaves_no_trace() -> None:
    """It runs again with the readers as they were: nothing of it counts twice."""
    rows = recorded("key_schemas")
    translation = Translation(Registry(), KnownEpochs())
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
    parsed = parse(way(registry, KnownEpochs())(records(rows)))
    assert not parsed.unreadable
    assert parsed.events["op"].to_pylist() == ["r", "u", "d", "c", "t"]
    assert parsed.events["ver"].to_pylist() == [1] * 5
    assert parsed.events["pos"].to_pylist()[0] == f"{1:08x}{0:016x}{0:08x}"
    positions = [str(pos) for pos in parsed.events["pos"].to_pylist()]
    assert positions == sorted(positions)
    # One shape is asked for once in a run.
    assert registry.asked == 1


def test_a_record_without_a_schema_has_the_topics_newest_version(way: type[Translation]) -> None:
    parsed = parse(way(Registry(), KnownEpochs())(records(recorded("sh_operations"))))
    assert set(parsed.events["ver"].to_pylist()) == {7}
    assert not parsed.unreadable


def test_order_within_and_across_batches_is_that_of_offsets(way: type[Translation]) -> None:
    rows = recorded("snapshots")
    whole = way(Registry(), KnownEpochs())(records(rows[::-1]))
    translate = way(Registry(), KnownEpochs())
    ordered = sorted(rows, key=lambda row: (row.partition, row.offset))
    parts = [translate(records([row])) for row in ordered]
    assert pa.concat_tables(parts).equals(whole)


def test_a_record_that_is_not_debeziums_becomes_a_letter(way: type[Translation]) -> None:
    foreign = Recorded("t", 0, 3, b'{"id":1}', b"what is this")
    parsed = parse(way(Registry(), KnownEpochs())(records([foreign])))
    (one,) = parsed.unreadable
    assert (one.offset, one.value) == (3, b"what is this")
    assert one.reason.startswith("not a record of Debezium's")


def test_a_record_of_ours_is_left_as_it_is(way: type[Translation]) -> None:
    headers: list[tuple[str, bytes | None]] = [("pos", b"0" * 32), ("op", b"c"), ("ver", b"3")]
    ours = Recorded("t", 0, 0, b'{"id":1}', b'{"after":{"id":1}}')
    parsed = parse(way(Registry(), KnownEpochs())(records([ours], headers)))
    assert parsed.events["ver"].to_pylist() == [3]


def test_an_empty_batch_stays_empty(way: type[Translation]) -> None:
    assert way(Registry(), KnownEpochs())(records([])).num_rows == 0


def test_a_reset_while_the_sink_runs_begins_an_epoch(way: type[Translation]) -> None:
    rows = [row for row in recorded("sh_operations") if row.value is not None]
    known = KnownEpochs()
    translate = way(Registry(), known)
    before = parse(translate(records(rows[:3]))).events["pos"].to_pylist()
    known.state = known.state.begin({rows[0].topic: {0: rows[3].offset}})
    after = parse(translate(records(rows[3:]))).events["pos"].to_pylist()
    assert {str(pos)[:8] for pos in before} == {"00000001"}
    assert {str(pos)[:8] for pos in after} == {"00000002"}


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
        way(Registry(), known, earlier=lambda: earlier)(records(after))
    # It stays stopped, whatever it begins with, until another epoch begins.
    with pytest.raises(PositionsFell, match="offset 3"):
        way(Registry(), known)(records([binlog_row(4, "b2", 2)]))
    known.state = known.state.begin({"d.s.t": {0: 4}})
    assert way(Registry(), known)(records([binlog_row(4, "b2", 2)])).num_rows == 1


def test_h124_another_server_with_higher_positions_is_heard(
    way: type[Translation], caplog: pytest.LogCaptureFixture
) -> None:
    """Its changes are newer for every store, and no store stops. It is told once, and noted."""
    rows = [binlog_row(n, "a1", 7) for n in range(3)] + [binlog_row(n, "b2", 9) for n in range(3, 6)]
    known = KnownEpochs()
    translate = way(Registry(), known)
    with caplog.at_level("WARNING"):
        assert translate(records(rows[:5])).num_rows == 5
        assert translate(records(rows[5:])).num_rows == 1
    assert [(one.getMessage(), one.was, one.now) for one in caplog.records] == [  # type: ignore[attr-defined]
        ("source_server_changed", "a1", "b2")
    ]
    said = "changes are of the server b2 since offset 3 of partition 0 of d.s.t, and were of a1 before"
    assert (known.state.moved, known.state.fell) == (said, "")
    assert known.state.begin({}).moved == "", "another epoch begins with the server that it has"


def test_h126_a_run_that_begins_with_a_flat_tombstone_deletes(way: type[Translation]) -> None:
    flat = Recorded("d.s.t", 0, 200, b'{"id":1}', b'{"id":1,"v":"a"}')
    tombstone = flat._replace(offset=4000, value=None)
    earlier = Earlier([flat])
    translate = way(Registry(), KnownEpochs(), earlier=lambda: earlier)
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
    translate = way(Registry(), known)
    translate(records([snapshot_row(0, "first"), snapshot_row(1, "true")]))
    assert (known.state.first(), known.state.latest) == (("d.s.t", 0, 0), 1)
    with pytest.raises(SnapshotAgain):
        translate(records([snapshot_row(2, "first"), snapshot_row(3, "true")]))
    assert (known.state.first(), known.state.latest, known.state.reread) == (("d.s.t", 0, 2), 2, 2)
    # The next run, and any other store's, finds it noted.
    rows = [snapshot_row(n, "first" if n in (0, 2) else "true") for n in range(4)]
    events = parse(way(Registry(), known)(records(rows))).events
    assert [str(pos)[:8] for pos in events["pos"].to_pylist()] == ["00000001"] * 2 + ["00000002"] * 2
    assert known.state.latest == 2


@pytest.mark.parametrize("between", [{"marker": "last"}, {"marker": "false", "sequence": '["96","99"]'}])
def test_h123_a_snapshot_on_request_begins_no_epoch(way: type[Translation], between: dict[str, str]) -> None:
    """Another table may be read alone, or some rows: sweeping below it would take all others away."""
    known = KnownEpochs()
    rows = [snapshot_row(0, "first"), snapshot_row(5, **between, partition=1), snapshot_row(2, "first")]
    translate = way(Registry(), known)
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
    translate = way(Registry(), known)
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
        way(Registry(), known)(records(rows))
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
    translate = way(Registry(), known)
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
        way(Registry(), known)(records([snapshot_row(0, "first"), snapshot_row(2, "first")], times_ms=(1, 9)))
    assert known.state.latest == epoch


@pytest.mark.parametrize(("reading", "epoch"), [(True, 2), (False, 1)])
def test_h123_behind_a_commit_the_connector_has_the_word(way: type[Translation], reading: bool, epoch: int) -> None:
    known = KnownEpochs()
    known.is_reading = reading
    translate = way(Registry(), known)
    translate(records([snapshot_row(0, "first")]))
    with suppress(SnapshotAgain):
        translate(records([snapshot_row(2, "first", sequence='["4096","4100"]')]))
    assert known.state.latest == epoch


def test_h123_a_run_beyond_a_new_epochs_beginning_ends(way: type[Translation]) -> None:
    known = KnownEpochs()
    translate = way(Registry(), known)
    translate(records([snapshot_row(0, "true"), snapshot_row(7, "true")]))
    known.state = known.state.begin({"d.s.t": {0: 8}})
    translate(records([snapshot_row(8, "true")]))  # as after a reset: nothing of it was read
    known.state = known.state.begin({"d.s.t": {0: 6}})
    with pytest.raises(SnapshotAgain):
        translate(records([snapshot_row(9, "true")]))


def test_h231_a_translation_says_by_which_notes_it_reads(way: type[Translation]) -> None:
    """Whoever applies what it reads has to know whether an epoch that is claimed now was noted then."""
    known = KnownEpochs()
    translate = way(Registry(), known)
    noted = [translate.noted]
    for offset in (0, 8):
        translate(records([snapshot_row(offset, "true")]))
        noted.append(translate.noted)
        known.state = known.state.begin({"d.s.t": {0: 8}})
        noted.append(translate.noted)
    assert noted == [0, 1, 1, 2, 2]
