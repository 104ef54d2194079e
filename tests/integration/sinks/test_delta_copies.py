"""Copies of a Delta table put back under a newer watermark, also those that their version does not tell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from cdc.clock import SYSTEM_CLOCK
from cdc.crash import CRASH_EXIT
from cdc.progress import Watermark
from sinks.delta.delta_storage import Storage
from sinks.delta.delta_table import Delta
from sinks.kinds import beside, open_generations, spec_for
from sinks.port import CannotCarry, OpenSink, PlaceMissing
from sinks.registry import Option, open_sink
from tests.contract.topics import ORDERS, Topic, at, batch, column, shape
from tests.integration.sinks.test_delta import delta, filled_twice, put_back, read
from tests.integration.sinks.warehouse import ROW, SHAPES

NUMBERED = shape(column("id", "int8", key=1), column("status", "int4"), column("note", "text"), version=2)
"""The orders with a column that the copy has as text."""


def prepared(warehouse: Path) -> Watermark | None:
    """What the store claims when a sink has begun."""
    with closing(delta(warehouse)) as sink:
        sink.sink.prepare(ORDERS)
        return sink.watermarks.read()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["table_prepared", "delta_emptied"])
def test_h470_a_copy_one_version_behind_is_noticed_after_a_kill(warehouse: Path, point: str) -> None:
    """Emptied it has the very version that was noted of the table that was lost."""
    filled_twice(warehouse).close()
    put_back(warehouse)
    program = (
        "import sys; from pathlib import Path; from tests.integration.sinks.test_delta_copies import prepared; "
        "prepared(Path(sys.argv[1]))"
    )
    died = subprocess.run(
        [sys.executable, "-c", program, str(warehouse)], env={**os.environ, "CDC_CRASH_AT": point}, check=False
    )
    assert died.returncode == CRASH_EXIT
    assert prepared(warehouse) is None
    assert read(warehouse) == []


def test_h471_a_copy_that_cannot_be_carried_is_not_forgotten(warehouse: Path) -> None:
    """Held, it waits for the source's column to be changed back. Its rows come from the log then."""
    filled_twice(warehouse).close()
    put_back(warehouse)
    with closing(delta(warehouse)) as sink:
        with pytest.raises(CannotCarry, match="column status"):
            sink.sink.prepare(NUMBERED)
        assert sink.watermarks.read() is None, "nothing is claimed of the rows that are gone"
    assert read(warehouse) == []


def test_h471_a_copy_of_other_partitions_is_noticed_later(warehouse: Path) -> None:
    """It is refused before anybody looks whether it is older, and its version is not noted in the meantime."""
    filled_twice(warehouse).close()
    put_back(warehouse)
    options: dict[str, Option] = {"path": str(warehouse), "partition_by": '{"public.orders": "status"}'}
    with closing(open_sink(spec_for("delta", prefix="shop", options=options))) as sink:
        with pytest.raises(CannotCarry, match="partition"):
            sink.sink.prepare(ORDERS)
        sink.commit(Watermark(epoch=1, lsn=30, offsets={ORDERS.topic: {0: 2}}))
    assert prepared(warehouse) is None
    assert read(warehouse) == []


def removed_and_filled(warehouse: Path) -> None:
    """A table of five commits, removed and filled anew by one. The one before is kept as the copy."""
    topic = Topic()
    with closing(delta(warehouse)) as sink:
        for number in range(5):
            sink.sink.apply(batch(topic.upsert({**ROW, "id": number}, at(number))), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=10, offsets={ORDERS.topic: {0: 5}}))
    (warehouse / "public" / "orders").rename(warehouse / "copy")
    with closing(delta(warehouse)) as sink:
        sink.sink.prepare(ORDERS)
        sink.sink.apply(batch(*(topic.upsert({**ROW, "id": number}, at(number)) for number in range(2, 9))), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=20, offsets={ORDERS.topic: {0: 9}}))


def test_h472_a_copy_from_before_a_removal_is_noticed(warehouse: Path) -> None:
    """It has the higher version."""
    removed_and_filled(warehouse)
    put_back(warehouse)
    assert prepared(warehouse) is None
    assert read(warehouse) == []
    assert prepared(warehouse) is None


def test_h472_another_table_is_noticed_while_the_sink_runs(warehouse: Path) -> None:
    removed_and_filled(warehouse)
    with closing(delta(warehouse)) as sink:
        sink.sink.prepare(ORDERS)
        put_back(warehouse)
        with pytest.raises(PlaceMissing):
            sink.watermarks.read()
        with pytest.raises(PlaceMissing):
            sink.sink.apply(batch(Topic().upsert(ROW, at(30))), SHAPES)


def test_h472_a_table_stays_the_same_whatever_is_done_to_it(warehouse: Path) -> None:
    """Also by ``cdc rebuild``, which puts another one's rows in its place."""
    with closing(filled_twice(warehouse)) as sink:
        place = str(warehouse / "public" / "orders")
        first = deltalake.DeltaTable(place).metadata().id
        sink.sink.prepare(shape(*ORDERS.columns, column("more", "int4"), version=2))
    shutil.copytree(warehouse, warehouse / "other")
    of_ours, of_other = (
        Delta(Storage(root=str(root)), "public/orders", SYSTEM_CLOCK) for root in (warehouse, warehouse / "other")
    )
    assert of_ours.exists() and of_other.exists()
    of_ours.retype({"more": pa.string()})
    of_ours.set_vectors(wanted=True)
    of_ours.take(of_other)
    deltalake.DeltaTable(place).optimize.compact()
    deltalake.DeltaTable(place).restore(1)
    assert deltalake.DeltaTable(place).metadata().id == first


def status_of_five(sink: OpenSink, topic: Topic, number: int) -> None:
    """A batch that says of row 5 which one it is, and a row of its own, with the watermark."""
    rows = [{**ROW, "id": key, "status": f"batch {number}"} for key in (5, 100 + number)]
    sink.sink.apply(batch(*(topic.upsert(row, at(2 * number + n)) for n, row in enumerate(rows))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=number, offsets={ORDERS.topic: {0: len(topic.events)}}))


@pytest.mark.parametrize("runs", [False, True])
def test_h480_what_a_copy_stood_for_is_noticed_as_well(warehouse: Path, runs: bool) -> None:
    """A copy is put back, the sink begins the table anew, and then the table itself comes back: it has the higher
    version, and lacks what was written since."""
    topic, place = Topic(), warehouse / "public" / "orders"
    with closing(delta(warehouse)) as sink:
        status_of_five(sink, topic, 1)
        shutil.copytree(place, warehouse / "copy")
        for number in range(2, 9):
            status_of_five(sink, topic, number)
    place.rename(warehouse / "itself")
    (warehouse / "copy").rename(place)
    with closing(delta(warehouse)) as sink:
        sink.sink.prepare(ORDERS)
        assert sink.watermarks.read() is None
        sink.sink.apply(batch(topic.events), SHAPES)
        status_of_five(sink, topic, 9)
        shutil.rmtree(place)
        (warehouse / "itself").rename(place)
        if runs:
            with pytest.raises(PlaceMissing):
                sink.watermarks.read()
    assert prepared(warehouse) is None
    assert read(warehouse) == []


@pytest.mark.parametrize("there", ["older", "empty", "none"])
def test_h481_a_warehouse_exchanged_under_a_sink_is_no_bug(warehouse: Path, tmp_path: Path, there: str) -> None:
    """The files go with the folder, between the look at the log and the reading of the rows. Nothing is claimed but
    what is in the folder that came."""
    topic, place = Topic(), warehouse / "ours"
    with closing(delta(place)) as sink:
        status_of_five(sink, topic, 1)
        shutil.copytree(place, tmp_path / "older")
        (tmp_path / "empty").mkdir()
        status_of_five(sink, topic, 2)
        place.rename(tmp_path / "newer")
        if there != "none":
            (tmp_path / there).rename(place)
        with pytest.raises(PlaceMissing):
            sink.current()
    found = prepared(place)
    assert (found.lsn if found is not None else 0) == (1 if there == "older" else 0)


def written_by_others(table: Path, version: int) -> None:
    """Commits without a row, as somebody's upkeep makes them."""
    other = deltalake.DeltaTable(str(table))
    while other.version() < version:
        other.alter.set_table_properties({"theirs": str(other.version())}, raise_if_not_exists=False)


@pytest.mark.parametrize("more", [0, 3])
def test_h505_a_copy_that_others_wrote_to_is_noticed(warehouse: Path, more: int) -> None:
    """It has come to the very version that was noted, or beyond, and lacks a row."""
    filled_twice(warehouse).close()
    noted = deltalake.DeltaTable(str(warehouse / "public" / "orders")).version()
    put_back(warehouse)
    written_by_others(warehouse / "public" / "orders", noted + more)
    assert prepared(warehouse) is None
    assert read(warehouse) == []
    assert prepared(warehouse) is None


@pytest.mark.parametrize("more", [0, 3])
def test_h505_it_is_noticed_while_the_sink_runs(warehouse: Path, more: int) -> None:
    with closing(filled_twice(warehouse)) as sink:
        assert sink.watermarks.read() is not None
        noted = deltalake.DeltaTable(str(warehouse / "public" / "orders")).version()
        written_by_others(warehouse / "copy", noted + more)
        put_back(warehouse)
        with pytest.raises(PlaceMissing):
            sink.watermarks.read()
        with pytest.raises(PlaceMissing):
            sink.sink.apply(batch(Topic().upsert({**ROW, "id": 78}, at(3))), SHAPES)


def test_h505_a_table_of_another_line_is_noticed(warehouse: Path, tmp_path: Path) -> None:
    """A whole warehouse is put back, goes on, and then gets one table of the line that it was put back from."""
    topic, place = Topic(), warehouse / "public" / "orders"
    with closing(delta(warehouse)) as sink:
        status_of_five(sink, topic, 1)
    shutil.copytree(warehouse, tmp_path / "backup")
    with closing(delta(warehouse)) as sink:
        for number in (2, 3, 4, 5):
            status_of_five(sink, topic, number)
    place.rename(tmp_path / "itself")
    shutil.rmtree(warehouse)
    (tmp_path / "backup").rename(warehouse)
    with closing(delta(warehouse)) as sink:
        sink.sink.apply(batch(topic.events), SHAPES)
        status_of_five(sink, topic, 6)
    shutil.rmtree(place)
    (tmp_path / "itself").rename(place)
    assert 106 not in [row["id"] for row in read(warehouse)]
    assert prepared(warehouse) is None
    assert read(warehouse) == []


def test_h505_what_others_write_to_the_table_itself_is_no_copy(warehouse: Path) -> None:
    """Also where the log has forgotten the commit that was noted."""
    filled_twice(warehouse).close()
    place = warehouse / "public" / "orders"
    noted = deltalake.DeltaTable(str(place)).version()
    written_by_others(place, noted + 3)
    found = prepared(warehouse)
    assert found is not None and found.lsn == 20
    deltalake.DeltaTable(str(place)).create_checkpoint()
    for file in sorted((place / "_delta_log").glob("0*.json"))[:-1]:
        file.unlink()
    found = prepared(warehouse)
    assert found is not None and found.lsn == 20


def test_h482_a_copy_of_before_a_rebuild_is_noticed(warehouse: Path) -> None:
    """No watermark of a sink has noted the versions since the switch."""
    topic, place = Topic(), warehouse / "public" / "orders"
    spec = spec_for("delta", prefix="shop", options={"path": str(warehouse)})
    with closing(delta(warehouse)) as sink:
        status_of_five(sink, topic, 1)
    shutil.copytree(place, warehouse / "copy")
    with closing(open_sink(beside(spec, 2))) as sink:
        sink.sink.apply(batch(topic.events), SHAPES)
        status_of_five(sink, topic, 2)
    with closing(open_generations(spec, SYSTEM_CLOCK)) as generations:
        generations.switch(2, [ORDERS])
    with closing(delta(warehouse)) as sink:
        sink.sink.prepare(ORDERS)
        found = sink.watermarks.read()
    assert found is not None and found.lsn == 2, "the switch itself is believed"
    put_back(warehouse)
    assert prepared(warehouse) is None
    assert read(warehouse) == []


def test_h484_a_rebuild_keeps_no_copy_that_nobody_noticed(warehouse: Path) -> None:
    """A copy is put back under the watermark, and a rebuild comes before a sink. Going back to what was kept claims no
    row that the copy lacks."""
    topic, place = Topic(), warehouse / "public" / "orders"
    spec = spec_for("delta", prefix="shop", options={"path": str(warehouse)})
    with closing(delta(warehouse)) as sink:
        status_of_five(sink, topic, 1)
        shutil.copytree(place, warehouse / "copy")
        status_of_five(sink, topic, 2)
    put_back(warehouse)
    with closing(open_sink(beside(spec, 2))) as sink:
        sink.sink.apply(batch(topic.events), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=2, offsets={ORDERS.topic: {0: len(topic.events)}}))
    with closing(open_generations(spec, SYSTEM_CLOCK)) as generations:
        generations.keep(1, [ORDERS])
        generations.switch(2, [ORDERS])
        assert [row["id"] for row in read(warehouse)] == [101, 102, 5]
        generations.switch(1, [ORDERS])
    with closing(delta(warehouse)) as sink:
        sink.sink.prepare(ORDERS)
        found = sink.watermarks.read()
    assert found is not None and (found.lsn, found.offsets) == (0, {}), "the log is read again"
    assert [row["id"] for row in read(warehouse)] == [101, 102, 5]


def test_h486_rows_of_a_killed_writer_below_a_rebuilds_floor(warehouse: Path) -> None:
    """A sink that is far behind has a batch in hand while a rebuild puts rows and a TRUNCATE's floor in the place of
    its own. It writes, and is killed before it comes to its watermark."""
    topic = Topic()
    spec = spec_for("delta", prefix="shop", options={"path": str(warehouse)})
    behind = batch(topic.upsert({**ROW, "id": 1}, at(1)), topic.upsert({**ROW, "id": 2}, at(2)))
    all_of_it = batch(topic.events, topic.truncate(at(3)), topic.upsert({**ROW, "id": 3}, at(4)))
    with closing(delta(warehouse)) as sink:
        sink.sink.apply(behind.slice(0, 1), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=0, offsets={ORDERS.topic: {0: 1}}))
        with closing(open_sink(beside(spec, 2))) as built:
            built.sink.apply(all_of_it, SHAPES)
            built.commit(Watermark(epoch=1, lsn=4, offsets={ORDERS.topic: {0: 4}}))
        with closing(open_generations(spec, SYSTEM_CLOCK)) as generations:
            generations.switch(2, [ORDERS])
        sink.sink.apply(behind, SHAPES)
    assert len(read(warehouse)) == 3
    found = prepared(warehouse)
    assert found is not None and found.lsn == 4
    assert [row["id"] for row in read(warehouse)] == [3]
