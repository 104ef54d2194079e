"""Writers of an Iceberg warehouse: two at once, killed ones, others' hands between look and merge, a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Retry
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import OpenSink, StoreAway
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.iceberg.iceberg_columns import whole_rows
from sinks.iceberg.iceberg_faults import LakeUnfit
from sinks.iceberg.iceberg_store import lake_table
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.topics import ORDERS, Topic, at, batch
from tests.faults.experiments.disk_full import CannotMount, small_disk
from tests.fresh import fresh_name
from tests.lakes import foreign_catalog, foreign_table, lake_catalog

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

MARK = Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 4}})


@pytest.fixture
def lake(spark_session: SparkSession, database: str, warehouse: Path) -> SinkSpec:
    login = lake_catalog(database)
    return spec_for(
        "iceberg", prefix=fresh_name(), options={**login.options, "path": str(warehouse)}, secrets=login.secrets
    )


@pytest.fixture
def store(lake: SinkSpec) -> Iterator[OpenSink]:
    with closing(open_sink(lake)) as opened:
        yield opened


def put(store: OpenSink, lsn: int, *rows: dict[str, Any]) -> None:
    store.sink.apply(batch(*(Topic().upsert(row, at(lsn)) for row in rows)), SHAPES)


def rows_of(*numbers: int, status: str, lsn: int = 5, **more: str) -> pa.Table:
    """Rows as a merge takes them, with a column ``more`` where one is given."""
    count = len(numbers)
    made: dict[str, Any] = {
        "id": pa.array(numbers, pa.int64()),
        "status": [status] * count,
        **{name: [value] * count for name, value in more.items()},
        "cdc_key": [str(number) for number in numbers],
        "cdc_pos": [str(at(lsn))] * count,
        "cdc_deleted": [False] * count,
    }
    return pa.table(made)


def test_h377_two_writers_of_an_empty_table_leave_one_row(lake: SinkSpec, store: OpenSink) -> None:
    """pyiceberg by itself would append once more, behind the other one's rows."""
    with foreign_catalog(lake) as catalog:
        store.sink.prepare(ORDERS)
        slow, quick = (lake_table(catalog, "public_orders", SYSTEM_CLOCK) for _ in range(2))
        assert slow.exists()
        assert quick.exists()
        quick.put(rows_of(1, 2, status="quick", lsn=6))
        slow.put(rows_of(2, 3, status="slow"))
        assert statuses(store) == {"1": "quick", "2": "quick", "3": "slow"}
    with foreign_table(lake) as table:
        assert sorted(map(str, table.scan().to_arrow()["cdc_key"].to_pylist())) == ["1", "2", "3"]


def test_h377_two_repairs_of_new_keys_leave_one_row(lake: SinkSpec, store: OpenSink) -> None:
    with foreign_catalog(lake) as catalog:
        put(store, 1, order(9, "there"))
        slow, quick = (lake_table(catalog, "public_orders", SYSTEM_CLOCK) for _ in range(2))
        assert slow.exists()
        assert quick.exists()
        for table, status in ((quick, "quick"), (slow, "slow")):
            table._asked(partial(table._replaced, whole_rows(rows_of(1, status=status), table.types())))
        assert statuses(store) == {"1": "slow", "9": "there"}


def test_h378_a_column_that_comes_or_goes_behind_the_look(lake: SinkSpec, store: OpenSink) -> None:
    with foreign_catalog(lake) as catalog:
        put(store, 1, order(1, "a"))
        stale = lake_table(catalog, "public_orders", SYSTEM_CLOCK)
        assert stale.exists()
        with foreign_table(lake) as table, table.update_schema() as change:
            change.add_column("mine", StringType())
        stale.put(rows_of(1, status="b", note="kept"))
        with foreign_table(lake) as table, table.update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("note")
        with pytest.raises(LakeUnfit, match="a column was removed"):
            stale.put(rows_of(1, status="c", lsn=6, note="lost"))


KILLED = """
import os, sys
from contextlib import closing
from cdc.record.progress import Watermark
from sinks.contract.kinds import open_generations, spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.orders import SHAPES, order
from tests.contract.topics import ORDERS, Topic, at, batch, column, shape
from tests.contract.topics import Shapes

options = {"catalog": sys.argv[1], "path": sys.argv[2]}
spec = spec_for("iceberg", prefix=sys.argv[3], options=options, secrets={"password": os.environ["LAKE"]})
if sys.argv[4] == "switch":
    with closing(open_generations(spec)) as generations:
        generations.switch(2, [ORDERS])
else:
    wider = shape(*ORDERS.columns, column("more", "text"), version=2)
    with closing(open_sink(spec)) as store:
        for topic, shapes in ((Topic(), SHAPES), (Topic(wider), Shapes(ORDERS, wider))):
            store.sink.apply(batch(*(topic.upsert(order(n, "a"), at(5)) for n in (1, 2))), shapes)
        store.commit(Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 4}}))
"""


def killed(spec: SinkSpec, what: str, point: str = "") -> int:
    arguments = (str(spec.options["catalog"]), str(spec.options["path"]), spec.prefix, what)
    more = {"LAKE": spec.secrets["password"], **({"CDC_CRASH_AT": point} if point else {})}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **more},
    )  # fmt: skip
    assert done.returncode in (0, CRASH_EXIT), done.stderr
    return done.returncode


def test_h358_a_writer_that_is_killed_anywhere_goes_on(lake: SinkSpec) -> None:
    """Each run goes on from where the former was killed."""
    for point in ("iceberg_table_made", "iceberg_columns_added", "iceberg_merged", "iceberg_note_written"):
        assert killed(lake, "write", point) == CRASH_EXIT
    assert killed(lake, "write") == 0
    with closing(open_sink(lake)) as store:
        assert store.watermarks.read() == MARK
        assert statuses(store) == {"1": "a", "2": "a"}


def test_h358_a_switch_that_is_killed_anywhere_goes_on(lake: SinkSpec) -> None:
    for point in ("iceberg_note_written", "iceberg_tables_moved"):
        one = replace(lake, prefix=fresh_name())
        for spec, status, lsn in ((one, "old", 9), (beside(one, 2), "new", 20)):
            with closing(open_sink(spec)) as store:
                put(store, lsn, order(1, status))
                store.commit(replace(MARK, lsn=lsn))
        assert killed(one, "switch", point) == CRASH_EXIT
        with closing(open_sink(one)) as store:
            mark = store.watermarks.read()
            assert mark is not None
            assert mark.lsn == 9, "no more is claimed than is true of both"
        assert killed(one, "switch") == 0
        for number, status in ((2, "new"), (1, "old")):
            with closing(open_generations(one)) as generations:
                generations.switch(number, [ORDERS])
                assert generations.in_use() == number
            with closing(open_sink(one)) as store:
                assert statuses(store) == {"1": status}


def test_h388_a_discard_leaves_what_is_somebody_elses(lake: SinkSpec, warehouse: Path) -> None:
    filled = beside(lake, 2)
    with closing(open_sink(filled)) as store:
        put(store, 1, order(1, "a"))
        store.commit(MARK)
    with foreign_catalog(filled) as catalog:
        namespace = catalog.place.namespace
        catalog.opened.create_table((namespace, "theirs"), pa.schema([("id", pa.int64())]))
        for left in ({"theirs"}, set()):
            with closing(open_generations(lake)) as generations:
                generations.discard(2, [ORDERS])
            assert catalog.names(namespace) == left
            catalog.drop(namespace, ["theirs"])
        assert not catalog.opened.namespace_exists(namespace)
    assert not list(warehouse.glob(f"{namespace}/public_orders-*/*/*"))


ENDED = """
import sys
from pathlib import Path
import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from cdc.process.clock import SYSTEM_CLOCK
from sinks.iceberg.iceberg_columns import OWN_FIELDS, whole_rows
from sinks.iceberg.iceberg_table import IcebergTable
from tests.lake_sessions import lake_spark
from tests.lakes import FileCatalog

root, asked = Path(sys.argv[1]), []
catalog, shape = FileCatalog(root), pa.schema(OWN_FIELDS)
with lake_spark(root) as session:
    def ends():
        asked.append(1)
        session.stop()
        raise CommitFailedException("somebody wrote meanwhile")

    table = IcebergTable(catalog, "orders", SYSTEM_CLOCK, ends)
    table.create(shape)
    given = pa.table({"cdc_key": ["1", "2"], "cdc_pos": ["0", "0"], "cdc_deleted": [False, False]})
    catalog.load("shop", "orders").append(whole_rows(given, dict(zip(shape.names, shape.types))))
    table.check()
    table.delete_where("cdc_deleted")
    print(len(asked), catalog.load("shop", "orders").scan().to_arrow().num_rows)
"""


def test_h382_no_row_goes_where_spark_ends_between_tries(tmp_path: Path) -> None:
    """``SparkContext.stop()`` between two tries of the delete of remembered deletes."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "2"]


def test_h379_a_full_folder_is_one_sentence_and_is_waited_for(lake: SinkSpec, tmp_path: Path) -> None:
    try:
        with (
            small_disk(tmp_path / "disk", "4m") as disk,
            closing(open_sink(replace(lake, options={**lake.options, "path": str(disk)}))) as store,
        ):
            put(store, 1, *(order(number, "a") for number in range(20)))
            with suppress(OSError), (disk / "theirs").open("wb") as file:
                while True:
                    file.write(bytes(65536))
                    file.flush()
            for number in (1, 99):
                with pytest.raises(StoreAway, match="No space left") as full:
                    put(store, 2, order(number, "b"))
                assert full.value.retry is Retry.LATER
                assert "room" in full.value.hint
            (disk / "theirs").unlink()
            put(store, 2, order(1, "b"))
            assert (statuses(store)["1"], len(statuses(store))) == ("b", 20)
    except CannotMount as why:
        pytest.skip(f"no small disk can be mounted here: {why}")
