"""A row larger than its topic takes: a stop, or a dead letter, as the settings say."""

from __future__ import annotations

import orjson
import pytest

from cdc.process.errors import Exit
from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn
from tests.waiting import wait_until

LARGE = "(select string_agg(md5(random()::text), '') from generate_series(1, 100000))"


@pytest.fixture
def docs(pipeline: Pipeline) -> Pipeline:
    """A table of documents, one of them of 3.2 MB before the snapshot, put aside by the default policy."""
    pipeline.document["source"]["tables"] = ["public.orders", "public.docs"]
    pipeline.document["log"]["oversized_tables"] = {"public.orders": "stop"}
    pipeline.sql(
        "create table docs (id int primary key, body text)",
        f"insert into docs values (1, 'small'), (2, {LARGE}), (3, 'small')",
    )
    pipeline.begin()
    return pipeline


def aside(pipeline: Pipeline) -> list[str]:
    """The keys that are put aside."""
    said = pipeline.good("dead", "list", "--json").splitlines()
    assert all(orjson.loads(line)["why"] == "oversized" for line in said)
    return sorted(orjson.loads(line)["key"] for line in said)


def events(pipeline: Pipeline, table: str) -> str:
    return pipeline.good("events", "--from-beginning", "--until-caught-up", table)


@pytest.mark.slow
def test_h58_a_large_row_becomes_a_dead_letter_and_capture_flows(docs: Pipeline, spawn: Spawn) -> None:
    assert aside(docs) == ['{"id":2}'], "the snapshot's"
    capture = spawn("cdc", "--config", docs.config, "run")
    docs.sql(
        f"insert into docs values (4, {LARGE})",
        f"update docs set body = {LARGE} where id = 1",
        "insert into docs values (5, 'behind it')",
        "update docs set body = 'small again' where id = 2",
    )
    wait_until(lambda: "small again" in events(docs, "public.docs"), 60, lambda: capture.stderr[-2000:])
    assert aside(docs) == ['{"id":1}', '{"id":2}', '{"id":4}']
    assert "behind it" in events(docs, "public.docs")
    assert capture.terminate() == Exit.OK, capture.stderr
    assert "row_put_aside" in capture.stderr
    # Acknowledged: another start sends nothing again.
    again = spawn("cdc", "--config", docs.config, "run")
    docs.sql("insert into docs values (6, 'last')")
    wait_until(lambda: "last" in events(docs, "public.docs"), 60, lambda: again.stderr[-2000:])
    assert "row_put_aside" not in again.stderr
    dropped = docs.cdc("dead", "drop", "--table", "public.docs", "--key", "2")
    assert dropped.returncode == Exit.OK, dropped.stderr
    assert aside(docs) == ['{"id":1}', '{"id":4}']


@pytest.mark.slow
def test_y9_status_and_the_log_lead_to_a_row_that_was_put_aside(docs: Pipeline, spawn: Spawn) -> None:
    lines = docs.good("dead", "list").splitlines()
    assert [line.startswith("  ") for line in lines] == [False, True], "a letter, and its reason below"
    assert '{"id":2}' in lines[0]
    status = docs.cdc("status")
    assert "1 row is larger than the topic takes" in status.stdout + status.stderr, status.stderr
    capture = spawn("cdc", "--config", docs.config, "run")
    docs.sql(f"insert into docs values (4, {LARGE})")
    wait_until(lambda: "row_put_aside" in capture.stderr, 60, lambda: capture.stderr[-2000:])
    (line,) = [line for line in capture.stderr.splitlines() if "row_put_aside" in line]
    shown = orjson.loads(docs.good("dead", "show", "(capture)", orjson.loads(line)["record"]))
    assert shown["key"] == '{"id":4}'
    docs.good("dead", "drop", "--sink", "(capture)")
    wait_until(lambda: not aside(docs), 30)
    status = docs.cdc("status")
    assert "larger than the topic" not in status.stdout + status.stderr


@pytest.mark.slow
def test_h58_another_table_still_stops_and_names_key_and_remedy(docs: Pipeline, spawn: Spawn) -> None:
    capture = spawn("cdc", "--config", docs.config, "run")
    docs.sql(f"update orders set status = {LARGE} where id = 42")
    assert capture.wait(60) == Exit.POISON, capture.stderr
    assert "larger than the topic takes" in capture.stderr
    assert "oversized" in capture.stderr
