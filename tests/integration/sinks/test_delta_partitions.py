"""Delta tables that the user has partitioned: by a column or by the key's hash, in both engines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest
from pydantic import ValidationError

from cdc.process.clock import ManualClock
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import CannotCarry, OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.delta.delta_kind import DeltaSinkSettings
from sinks.delta.delta_partitions import bucket_of
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.topics import ORDERS, Topic, at, batch
from tests.integration.sinks.test_spark_delta import MARK, put

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

BUCKETS: Mapping[str, Any] = {"public.orders": 4}
STATUS: Mapping[str, Any] = {"public.orders": "status"}
STRANGE = ["", "a/b=c", "it's", 'two "words"', "50% ü", "tab\t", "back\\slash", "x" * 300, "a:b?c*d", "..", "é\u0301"]


def spec(folder: Path, engine: str, by: Mapping[str, Any]) -> SinkSpec:
    settings = DeltaSinkSettings.model_validate({"path": str(folder), "engine": engine, "partition_by": dict(by)})
    return spec_for("delta", prefix="shop", options=settings.options())


def opened(folder: Path, engine: str, by: Mapping[str, Any]) -> OpenSink:
    return open_sink(spec(folder, engine, by), ManualClock())


def partitions(folder: Path) -> list[str]:
    """The folders that have a file of the newest version."""
    root = folder / "public" / "orders"
    uris = deltalake.DeltaTable(str(root)).file_uris()
    return sorted({uri.removeprefix(str(root) + "/").rsplit("/", 1)[0] for uri in uris})


def test_rows_lie_apart_by_the_hash_of_their_key(warehouse: Path, engine: str) -> None:
    topic = Topic()
    with closing(opened(warehouse, engine, BUCKETS)) as store:
        put(store, topic, 1, *(order(number) for number in range(40)))
        before = set(deltalake.DeltaTable(str(warehouse / "public/orders")).file_uris())
        put(store, topic, 2, order(1, "a"), order(50, "b"))
        store.sink.apply(batch(*topic.delete(order(2), at(3))), SHAPES)
        put(store, topic, 4, order(2, "again"))
        wanted = {str(n): "open" for n in range(40)} | {"1": "a", "50": "b", "2": "again"}
        assert statuses(store) == wanted
        assert store.reader.get(ORDERS, "50") is not None
    assert partitions(warehouse) == [f"_bucket_4={number}" for number in range(4)]
    left = before & set(deltalake.DeltaTable(str(warehouse / "public/orders")).file_uris())
    assert engine == "spark" or len(left) >= 4 - len({bucket_of(key, 4) for key in ("1", "50", "2")})
    shown = pl.scan_delta(str(warehouse / "public" / "orders")).filter(~pl.col("_deleted")).collect()
    assert dict(zip(shown["_key"], shown["status"], strict=True)) == wanted


def test_a_row_goes_with_its_value_to_another_partition(warehouse: Path, engine: str) -> None:
    topic = Topic()
    with closing(opened(warehouse, engine, STATUS)) as store:
        put(store, topic, 1, *(order(number, text) for number, text in enumerate(STRANGE)))
        assert statuses(store) == {str(number): text for number, text in enumerate(STRANGE)}
        put(store, topic, 2, *(order(number, text) for number, text in enumerate(reversed(STRANGE))))
        assert statuses(store) == {str(number): text for number, text in enumerate(reversed(STRANGE))}
        store.sink.apply(batch(*topic.delete(order(0), at(3))), SHAPES)
        store.sink.apply(batch(topic.upsert(order(0, "late"), at(2))), SHAPES)
        assert statuses(store) == {str(number): text for number, text in list(enumerate(reversed(STRANGE)))[1:]}


def _long_values() -> list[str]:
    """Each of them a folder's name that no file system takes, were it written whole."""
    return ["\u6f22" * 64, "\U0001f600" * 64, "a/" * 40, "x" * 300, "\u00e9" * 64]


def test_h397_a_long_value_does_not_stop_the_store(warehouse: Path, engine: str) -> None:
    topic, values = Topic(), _long_values()
    with closing(opened(warehouse, engine, STATUS)) as store:
        for lsn in (1, 2):
            put(store, topic, lsn, *(order(number, text) for number, text in enumerate(values)))
            assert statuses(store) == {str(number): text for number, text in enumerate(values)}


def test_h374_partitions_change_by_a_rebuild_alone(warehouse: Path) -> None:
    topic = Topic()
    with closing(opened(warehouse, "embedded", {})) as store:
        put(store, topic, 1, order(1, "a"), order(2, "b"))
        store.commit(MARK)
    for by, was, number in ((BUCKETS, "nothing", 2), (STATUS, "the key's hash into 4", 3), ({}, "status", 4)):
        with (
            closing(opened(warehouse, "embedded", by)) as store,
            pytest.raises(CannotCarry, match=f"it is partitioned by {was}, and the settings say"),
        ):
            put(store, topic, number, order(1, "refused"))
        with closing(open_sink(beside(spec(warehouse, "embedded", by), number))) as store:
            put(store, topic, number, order(1, f"life {number}"), order(2, "b"))
            put(store, topic, number, order(1, f"new {number}"))
            store.commit(MARK)
        with closing(open_generations(spec(warehouse, "embedded", by))) as generations:
            generations.keep(number - 1, [ORDERS])
            generations.switch(number, [ORDERS])
        with closing(opened(warehouse, "embedded", by)) as store:
            put(store, topic, number, order(3, "c"))
            assert statuses(store) == {"1": f"new {number}", "2": "b", "3": "c"}


def test_a_column_that_is_not_there_holds_the_table(warehouse: Path) -> None:
    why = "the settings partition it by absent, and it has no such column"
    by = {"public.orders": "absent"}
    with closing(opened(warehouse, "embedded", by)) as store, pytest.raises(CannotCarry, match=why):
        put(store, Topic(), 1, order(1))


@pytest.mark.parametrize("by", [{"orders": "status"}, {"public.orders": 1}, {"public.orders": 5000}])
def test_settings_that_say_no_partition_are_refused(by: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError, match="partition_by"):
        DeltaSinkSettings.model_validate({"path": "w", "partition_by": dict(by)})
