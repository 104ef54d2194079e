"""Masks by Debezium's own options: old rows, snapshot and stream, and types that it would pass over."""

from __future__ import annotations

import orjson
import pytest

from cdc.errors import ConfigError
from cdc.wire.format import UNAVAILABLE
from tests.integration.debezium.conftest import Pipeline

SENTINEL = "plainsentinel"
SHOWN = "a" * 28
LONG = SHOWN + SENTINEL


@pytest.mark.slow
def test_dropped_and_truncated_columns_of_debezium(pipeline: Pipeline) -> None:
    pipeline.document["tables"] = {"public.a": {"columns": {"v": "truncate:28", "n": "drop"}}}
    pipeline.run(
        "alter table a replica identity full",
        f"insert into a values (1, '{LONG}', 77.77), (2, null, null)",
    )
    pipeline.connector().deploy()
    pipeline.arrived("public.a", 2, 60)
    pipeline.run(
        f"insert into a values (3, '{LONG}', 77.77)",
        f"update a set v = 'x{LONG}' where id = 1",
        "delete from a where id = 3",
    )
    records = pipeline.arrived("public.a", 6, 30)
    text = orjson.dumps(records).decode()
    assert SENTINEL not in text and "77.77" not in text
    payloads = [value.get("payload", value) for _, value in records if value is not None]
    rows = [row for one in payloads for row in (one["before"], one["after"]) if row is not None]
    assert {(row["id"], row["v"]) for row in rows} == {(1, SHOWN), (1, f"x{SHOWN[1:]}"), (2, None), (3, SHOWN)}
    assert all(set(row) == {"id", "v"} for row in rows)


@pytest.mark.slow
def test_h292_a_long_value_that_was_left_out_stays_one(pipeline: Pipeline) -> None:
    pipeline.document["tables"] = {"public.a": {"columns": {"v": "truncate:28"}}}
    pipeline.run("alter table a alter v set storage external")
    pipeline.connector().deploy()
    pipeline.run(f"insert into a values (1, repeat('{LONG}', 900), 1)", "update a set n = 2")
    records = pipeline.arrived("public.a", 2, 60)
    rows = [value.get("payload", value)["after"] for _, value in records if value is not None]
    assert {row["v"] for row in rows} == {SHOWN, UNAVAILABLE}
    assert SENTINEL not in orjson.dumps(records).decode()


@pytest.mark.slow
def test_a_type_that_debezium_would_not_truncate_is_refused(pipeline: Pipeline) -> None:
    pipeline.document["tables"] = {"public.a": {"columns": {"n": "truncate:40"}}}
    with pytest.raises(ConfigError, match="Debezium truncates text alone"):
        pipeline.connector().deploy()
