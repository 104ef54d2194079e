"""Masks by Debezium's own options: old rows, snapshot and stream, and types that it would pass over."""

from __future__ import annotations

import orjson
import pytest

from cdc.errors import ConfigError
from tests.integration.debezium.conftest import Pipeline

SENTINEL = "plainsentinel"


@pytest.mark.slow
def test_dropped_and_truncated_columns_of_debezium(pipeline: Pipeline) -> None:
    pipeline.document["tables"] = {"public.a": {"columns": {"v": "truncate:3", "n": "drop"}}}
    pipeline.run(
        "alter table a replica identity full",
        f"insert into a values (1, '{SENTINEL}', 77.77), (2, null, null)",
    )
    pipeline.connector().deploy()
    pipeline.arrived("public.a", 2, 60)
    pipeline.run(
        f"insert into a values (3, '{SENTINEL}', 77.77)",
        f"update a set v = 'x{SENTINEL}' where id = 1",
        "delete from a where id = 3",
    )
    records = pipeline.arrived("public.a", 6, 30)
    text = orjson.dumps(records).decode()
    assert SENTINEL not in text and "77.77" not in text
    payloads = [value.get("payload", value) for _, value in records if value is not None]
    rows = [row for one in payloads for row in (one["before"], one["after"]) if row is not None]
    assert {(row["id"], row["v"]) for row in rows} == {(1, "pla"), (1, "xpl"), (2, None), (3, "pla")}
    assert all(set(row) == {"id", "v"} for row in rows)


@pytest.mark.slow
def test_a_type_that_debezium_would_not_truncate_is_refused(pipeline: Pipeline) -> None:
    pipeline.document["tables"] = {"public.a": {"columns": {"n": "truncate:1"}}}
    with pytest.raises(ConfigError, match="Debezium truncates text alone"):
        pipeline.connector().deploy()
