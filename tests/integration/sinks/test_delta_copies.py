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
from sinks.kinds import spec_for
from sinks.port import CannotCarry, PlaceMissing
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
