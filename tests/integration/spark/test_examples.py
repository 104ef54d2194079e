"""The example programs, run as their users run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from cdc.record.position import Lsn
from spark.jobs.examples import enrich_to_parquet, stream_to_batches, table_as_of
from tests.integration.spark.handmade import HandMadeLog


@pytest.fixture
def two(kafka: str, topic_prefix: str) -> HandMadeLog:
    """Orders, whose total is a customer's number, and customers."""
    made = HandMadeLog(topic_prefix, kafka, tables=("orders", "customers"))
    made.init()
    made.put([{"id": 1, "status": "Ada", "total": "0"}, {"id": 2, "status": "Bob", "total": "0"}], table="customers")
    made.put({"id": n, "status": "new", "total": str(n % 3)} for n in range(9))
    made.put([{"id": 2}], table="customers")
    made.put([{"id": 4, "status": "paid", "total": "1"}, {"id": 5}])
    return made


@pytest.fixture
def config(two: HandMadeLog, tmp_path: Path) -> str:
    path = tmp_path / "cdc.toml"
    path.write_text(two.toml({}), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_changes_are_enriched(spark_session: SparkSession, config: str, tmp_path: Path) -> None:
    tables = ["--table", "public.orders", "--with", "public.customers", "--on", "total=id"]
    enrich_to_parquet.main(["--config", config, *tables, "--out", str(tmp_path / "out")])
    rows = spark_session.read.parquet(str(tmp_path / "out")).collect()
    named = {(row.id, row.status): row.its.status if row.its else None for row in rows}
    assert len(rows) == 10
    assert (named[1, "new"], named[4, "paid"], named[2, "new"]) == ("Ada", "Ada", None)


@pytest.mark.slow
def test_a_table_is_printed_as_of_an_lsn(
    spark_session: SparkSession, two: HandMadeLog, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = two.progress()
    two.put([{"id": 100, "status": "late", "total": "1"}])
    now = two.progress()
    told = ["--config", config, "--table", "public.orders", "--lsn"]
    table_as_of.main([*told, str(Lsn(before))])
    assert len(capsys.readouterr().out.splitlines()) == 8
    table_as_of.main([*told, str(Lsn(now))])
    assert '{"id":100,"status":"late","total":1.00}' in capsys.readouterr().out.splitlines()
    with pytest.raises(PySparkException, match="the log holds the source up to"):
        table_as_of.main([*told, "FF/0"])


def streamed(told: list[str]) -> None:
    """Run the program. Spark gives a stream's worker ten seconds to start, and a busy machine may need more: then the
    query ends before its first batch, and goes on where it was when it is started again."""
    for _ in range(5):
        try:
            stream_to_batches.main(told)
        except StreamingQueryException as ended:
            if "failed to connect back" not in str(ended):
                raise
        else:
            return
    raise AssertionError("no worker came to be, five times")


@pytest.mark.slow
def test_a_stream_goes_into_ones_own_function(
    spark_session: SparkSession, two: HandMadeLog, config: str, tmp_path: Path
) -> None:
    places = ["--out", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint")]
    told = ["--config", config, "--table", "public.orders", *places, "--until-caught-up"]
    streamed(told)
    two.put([{"id": 7, "status": "sent", "total": "1"}])
    streamed(told)
    rows = spark_session.read.parquet(str(tmp_path / "out")).collect()
    by_batch = {(row.batch, row.id): (row.status, row._op) for row in rows}
    assert len(rows) == 10
    assert by_batch[0, 4] == ("paid", "u")
    assert by_batch[0, 5] == (None, "d")
    assert by_batch[1, 7] == ("sent", "u")
