"""Copies of a Delta table put back under a newer watermark, also those that their version does not tell."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import deltalake
import pytest

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.feeding import TRUTH, Feeding, filled, goes_on
from tests.contract.stores import Store
from tests.contract.stores import closing as closed
from tests.contract.topics import ORDERS, Topic, at, batch
from tests.integration.sinks.test_delta import delta, read
from tests.integration.sinks.warehouse import ROW, SHAPES


def fed(warehouse: Path) -> tuple[Store, Feeding]:
    store = Store("delta", spec_for("delta", prefix="shop", options={"path": str(warehouse)}))
    return store, filled(store)


def place(warehouse: Path) -> Path:
    return warehouse / "public" / "orders"


def noticed(feeding: Feeding, runs: bool) -> None:
    if not runs:
        feeding.end()
    feeding.rest()
    feeding.begun()
    assert not feeding.claims_all()
    feeding.level()
    assert (feeding.shows(), feeding.claims_all()) == (TRUTH, True)
    feeding.end()


@pytest.mark.parametrize("runs", [True, False])
def test_h84_a_restored_version_is_gone_on_with(warehouse: Path, runs: bool) -> None:
    """RESTORE takes the place back with the rows, by a commit more."""
    store, feeding = fed(warehouse)
    with closed(store):
        version = deltalake.DeltaTable(str(place(warehouse))).version()
        goes_on(feeding)
        deltalake.DeltaTable(str(place(warehouse))).restore(version)
        noticed(feeding, runs)


def written_by_others(table: Path, version: int) -> None:
    """Commits without a row, as somebody's upkeep makes them."""
    other = deltalake.DeltaTable(str(table))
    while other.version() < version:
        other.alter.set_table_properties({"theirs": str(other.version())}, raise_if_not_exists=False)


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("runs", [True, False])
def test_h505_a_copy_that_others_wrote_to_is_gone_on_with(warehouse: Path, runs: bool, more: int) -> None:
    """It has come to the very version of the table, or beyond, and lacks rows."""
    store, feeding = fed(warehouse)
    with closed(store):
        shutil.copytree(place(warehouse), warehouse / "copy")
        goes_on(feeding)
        written_by_others(warehouse / "copy", deltalake.DeltaTable(str(place(warehouse))).version() + more)
        shutil.rmtree(place(warehouse))
        (warehouse / "copy").rename(place(warehouse))
        noticed(feeding, runs)


def test_h505_what_others_write_to_the_table_itself_is_no_copy(warehouse: Path) -> None:
    """Also where the log has forgotten all commits but the newest."""
    store, feeding = fed(warehouse)
    with closed(store):
        goes_on(feeding)
        feeding.end()
        table = deltalake.DeltaTable(str(place(warehouse)))
        written_by_others(place(warehouse), table.version() + 3)
        table.update_incremental()
        table.create_checkpoint()
        for file in sorted((place(warehouse) / "_delta_log").glob("0*.json"))[:-1]:
            file.unlink()
        table.optimize.compact()
        feeding.rest()
        assert feeding.claims_all()
        feeding.rest()
        assert feeding.starts == 2, "it has begun, and goes on"
        feeding.end()


def test_the_place_has_a_file_of_its_own(warehouse: Path) -> None:
    """A batch of some rows does not write others anew for it."""
    store, feeding = fed(warehouse)
    with closed(store):
        goes_on(feeding)
        feeding.end()
    actions = deltalake.DeltaTable(str(place(warehouse))).get_add_actions(flatten=True)
    lows = actions.column("min._key").to_pylist()
    highs = actions.column("max._key").to_pylist()
    assert [low for low, high in zip(lows, highs, strict=True) if low == high == "%place"] == ["%place"]
    assert [low for low in lows if low == "%place"] == ["%place"]


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
    with closing(delta(warehouse)) as again:
        again.sink.prepare(ORDERS)
        found = again.watermarks.read()
    assert found is not None and found.lsn == 4
    assert [row["id"] for row in read(warehouse)] == [3]
