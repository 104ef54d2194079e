"""The examples of live rows run as they stand on their page, on a warehouse that the sink has written."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable, QueryBuilder

from cdc.record.progress import Watermark
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape

MANUAL = (Path(__file__).parents[2] / "sinks" / "LIVE_ROWS.md").read_text(encoding="utf-8")
LIVE = [(1, "open"), (3, "paid")]


def example(name: str) -> str:
    found = re.search(rf"<!-- example {name} -->\n```\w+\n(.*?)```\n<!-- /example", MANUAL, re.DOTALL)
    assert found is not None, name
    return found[1]


def written(root: Path) -> Path:
    """A warehouse of two live rows and a deleted one."""
    with contextlib.closing(open_sink(spec_for("delta", prefix="shop", options={"path": str(root)}))) as store:
        topic = Topic()
        rows = [{"id": key, "status": "open", "note": None} for key in (1, 2, 3)]
        store.sink.apply(batch(*(topic.upsert(row, at(1)) for row in rows)), Shapes(ORDERS))
        changes = topic.delete(rows[1], at(4)), topic.upsert({**rows[2], "status": "paid"}, at(5))
        store.sink.apply(batch(*changes), Shapes(ORDERS))
        store.commit(Watermark(epoch=1, lsn=9))
    return root


def written_exactly(root: Path) -> Path:
    """A warehouse of two payments, and the first one's moment is none that a column has."""
    payments = shape(column("id", "int8", key=1), column("paid_at", "timestamptz"), table="payments")
    with contextlib.closing(open_sink(spec_for("delta", prefix="shop", options={"path": str(root)}))) as store:
        topic = Topic(payments)
        moments = "infinity", "2026-11-26T10:00:00Z"
        rows = [{"id": key, "paid_at": moment} for key, moment in enumerate(moments, 1)]
        store.sink.apply(batch(*(topic.upsert(row, at(1)) for row in rows)), Shapes(payments))
    return root


def require_exact(rows: Iterable[Sequence[Any]]) -> None:
    (_, first), (_, second) = rows
    assert first == "infinity"
    assert second.startswith("2026-11-26")


def test_a_value_that_no_column_has_is_read_from_exact(tmp_path: Path) -> None:
    root = str(written_exactly(tmp_path))
    payments = DeltaTable(f"{root}/public/payments")
    warehouse = duckdb.connect()
    warehouse.register("payments", payments.to_pyarrow_dataset())
    require_exact(warehouse.sql(example("exact")).fetchall())
    found = QueryBuilder().register("payments", payments).execute(example("exact")).read_all()
    require_exact(list(zip(found["id"].to_pylist(), found["paid_at"].to_pylist(), strict=True)))
    names: dict[str, Any] = {"root": root}
    exec(compile(example("exact in polars"), "polars", "exec"), names)
    require_exact(names["exact"])


def test_a_view_of_live_rows_has_the_sources_columns_alone(tmp_path: Path) -> None:
    names: dict[str, Any] = {"root": str(written(tmp_path))}
    exec(compile(example("deltalake"), "deltalake", "exec"), names)
    view = names["warehouse"].execute("select * from orders_live").read_all()
    assert view.column_names == ["id", "status", "note"]


@pytest.mark.parametrize("name", ["duckdb", "polars", "deltalake"])
def test_an_example_shows_the_live_rows_alone(name: str, tmp_path: Path) -> None:
    names: dict[str, Any] = {"root": str(written(tmp_path))}
    exec(compile(example(name), name, "exec"), names)
    assert names["live"] == LIVE


def test_the_examples_were_run_with_these_versions() -> None:
    said = re.search(r"<!-- versions -->\n(.*?)\n<!-- /versions -->", MANUAL, re.DOTALL)
    assert said is not None
    packages = {"DuckDB": "duckdb", "polars": "polars", "deltalake": "deltalake", "Spark": "pyspark"}
    for name, package in packages.items():
        assert f"{name} {version(package)}" in said[1]
