"""A request for rows in a connector's stored offsets: Debezium's own form, and nothing else of them changed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.process.errors import ConfigError, UsageError
from connectors.debezium.offsets import reads_incrementally, with_snapshot
from connectors.debezium.snapshots import (
    blocking_data,
    require_first_snapshot_over,
    require_nameable,
    steering_data,
)

PLACE = {"lsn": 7, "lsn_commit": 6, "ts_usec": 1}
COLLECTIONS, ID = "incremental_snapshot_collections", "incremental_snapshot_collections_id"


def stored(*tables: str, **offset: Any) -> list[dict[str, Any]]:
    """Offsets as Debezium 3.7 writes them while it reads these tables."""
    reading = {
        "incremental_snapshot_primary_key": "aced0005",
        "incremental_snapshot_maximum_key": "aced0006",
        "incremental_snapshot_correlation_id": "before",
        COLLECTIONS: orjson.dumps([{ID: table, f"{COLLECTIONS}_surrogate_key": None} for table in tables]).decode(),
    }
    return [{"partition": {"server": "shop"}, "offset": PLACE | (reading if tables else {}) | offset}]


def every(collection: str) -> bool:
    return True


def tables_of(offsets: list[dict[str, Any]]) -> list[str]:
    [one] = offsets
    return [each[ID] for each in orjson.loads(one["offset"].get(COLLECTIONS, "[]"))]


def test_a_request_stands_beside_the_place_in_the_log() -> None:
    [given] = with_snapshot(stored(), ["public.b"], "an id", keep=every, where="id < 3")
    assert given["partition"] == {"server": "shop"}
    assert given["offset"].items() >= PLACE.items()
    assert given["offset"]["incremental_snapshot_correlation_id"] == "an id"
    [one] = orjson.loads(given["offset"][COLLECTIONS])
    assert one == {ID: "public.b", f"{COLLECTIONS}_additional_condition": "id < 3"}
    assert reads_incrementally([given])


def test_what_is_read_already_goes_on_where_it_is() -> None:
    [given] = with_snapshot(stored("public.a"), ["public.b"], "an id", keep=every)
    assert tables_of([given]) == ["public.a", "public.b"]
    assert given["offset"]["incremental_snapshot_primary_key"] == "aced0005"
    assert with_snapshot(stored("public.a"), [], keep=every) == stored("public.a")


def test_a_table_that_is_captured_no_more_is_not_read() -> None:
    left = with_snapshot(stored("public.a", "public.b"), [], keep="public.b".__eq__)
    assert tables_of(left) == ["public.b"]
    assert "incremental_snapshot_primary_key" not in left[0]["offset"]
    kept = with_snapshot(stored("public.a", "public.b"), [], keep="public.a".__eq__)
    assert kept[0]["offset"]["incremental_snapshot_primary_key"] == "aced0005"
    assert with_snapshot(stored("public.a"), [], keep=lambda table: False) == stored()


@pytest.mark.parametrize("odd", ["x", "[1]", '[{"other": 1}]', 7])
def test_offsets_of_another_form_are_refused(odd: object) -> None:
    with pytest.raises(ConfigError, match="is not of the form"):
        with_snapshot(stored(**{COLLECTIONS: odd}), ["public.b"], "an id", keep=every)


def test_a_first_snapshot_is_not_begun_again_by_a_stop() -> None:
    require_first_snapshot_over(stored())
    for offsets in ([], stored(snapshot="INITIAL")):
        with pytest.raises(ConfigError, match="has not stored an offset after its first snapshot"):
            require_first_snapshot_over(offsets)


def test_the_signal_of_a_blocking_snapshot() -> None:
    assert blocking_data(["public.a", "public.B"], "") == {
        "type": "blocking",
        "data-collections": ["public\\.a", "public\\.B"],
    }
    assert blocking_data(["public.a"], "id < 3")["additional-conditions"] == [
        {"data-collection": "public\\.a", "filter": "id < 3"}
    ]
    assert steering_data("pause", []) == {"type": "incremental"}
    for word, tables in (("begin", []), ("pause", ["public.a"])):
        with pytest.raises(UsageError, match=r"there is no signal begin|pause is of the whole snapshot"):
            steering_data(word, tables)
    with pytest.raises(UsageError, match="names no table"):
        require_nameable([], "")
    with pytest.raises(UsageError, match="fits one table"):
        require_nameable(["public.a", "public.b"], "id < 3")
