"""Masks by Debezium's own options: old rows, snapshot and stream, and types that it would pass over."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.errors import ConfigError
from cdc.masks import masks_of
from cdc.topic import TableName
from cdc.wire.debezium.wrapped import Wrappings
from cdc.wire.format import UNAVAILABLE
from connectors.debezium.client import MissingConnector
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range
from connectors.verified import masked_otherwise
from tests.integration.debezium.conftest import Pipeline
from tests.waiting import wait_until

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


def everything(pipeline: Pipeline) -> dict[str, list[bytes]]:
    """Topic -> key and value of each record, of every topic that has the pipeline's name before it."""
    log, name = pipeline.settings().log, pipeline.settings().name
    admin = TopicAdmin(log)
    return {
        topic: [
            (message.key() or b"") + (message.value() or b"")
            for partition in range(facts.partitions)
            for message in read_range(log, topic, partition)
        ]
        for topic, facts in admin.describe([one for one in admin.names() if one.startswith(f"{name}.")]).items()
    }


@pytest.mark.slow
def test_h320_no_partition_has_a_topic_with_plain_rows(pipeline: Pipeline) -> None:
    pipeline.document["tables"] = {"public.p": {"columns": {"v": "truncate:28", "n": "drop"}}}
    pipeline.run(
        "create table p (id int primary key, v text, n text) partition by range (id)",
        "create table p_low partition of p for values from (0) to (10) partition by range (id)",
        "create table p_one partition of p_low for values from (0) to (5)",
        f"insert into p values (1, '{LONG}', '{SENTINEL}')",
    )
    for tables, refusal in [
        (["public.*"], "pattern"),
        (["public.p", "public.p_one"], "p_one is a partition"),
        (["public.p", "public.p_low"], "p_low is a partition"),
    ]:
        pipeline.document["source"]["tables"] = tables
        with pytest.raises(ConfigError, match=refusal):
            pipeline.connector().deploy()
    pipeline.document["source"]["tables"] = ["public.p"]
    pipeline.connector().deploy()
    pipeline.arrived("public.p", 1, 60)
    pipeline.run(
        "create table p_high partition of p for values from (10) to (20)",
        f"insert into p values (2, '{LONG}', '{SENTINEL}'), (12, '{LONG}', '{SENTINEL}')",
    )
    pipeline.connector().snapshot(["public.p"])
    pipeline.run("update p set id = id + 1 where id = 2")
    pipeline.arrived("public.p", 8, 60)
    found = everything(pipeline)
    name = pipeline.settings().name
    assert {topic for topic in found if topic.startswith(f"{name}.public.")} == {f"{name}.public.p"}
    assert any(SHOWN.encode() in record for record in found[f"{name}.public.p"])
    assert not [topic for topic, records in found.items() for one in records if SENTINEL.encode() in one]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "columns", "refusal"),
    [
        ("public.a", {"n": "truncate:40"}, "Debezium truncates text alone"),
        ("public.aa", {"v": "drop"}, "is no captured table"),
        ("public.a", {"vv": "drop"}, "vv"),
    ],
)
def test_h321_masks_are_looked_at_whoever_publishes(
    pipeline: Pipeline, table: str, columns: dict[str, str], refusal: str
) -> None:
    pipeline.document["tables"] = {table: {"columns": columns}}
    pipeline.document["debezium"]["options"]["publication.autocreate.mode"] = "filtered"
    with pytest.raises(ConfigError, match=refusal):
        pipeline.connector().deploy()
    with pytest.raises(MissingConnector):
        pipeline.connector().running_config()


@pytest.mark.slow
def test_h322_h325_changed_masks_read_the_table_again(pipeline: Pipeline) -> None:
    pipeline.run(f"insert into a values (1, '{LONG}', 77.77)", "insert into b values (1, 'b')")
    pipeline.connector().deploy()
    pipeline.arrived("public.a", 1, 60)
    pipeline.document["tables"] = {"public.a": {"columns": {"v": "truncate:28", "n": "drop"}}}
    settings = pipeline.settings()
    captured: Any = dict.fromkeys([TableName("public", "a"), TableName("public", "b")])
    assert pipeline.connector().remasked() == ("public.a",)
    refused = masked_otherwise(settings, captured)
    assert list(refused) == ["public.a"] and "other masks for n, v than" in refused["public.a"]
    done = pipeline.connector().deploy()
    assert (done.remasked, done.added, bool(done.signal)) == (("public.a",), ("public.a",), True)
    pipeline.run("update b set v = 'c'")  # a part of a snapshot ends with a transaction
    (_, again) = pipeline.arrived("public.a", 2, 60)[-1]
    assert again.get("payload", again)["after"] == {"id": 1, "v": SHOWN}
    assert masked_otherwise(settings, captured) == {}
    assert pipeline.connector().remasked() == () == pipeline.connector().deploy().remasked
    pipeline.document["debezium"]["url"] = "http://127.0.0.1:9"
    assert "are not known" in masked_otherwise(pipeline.settings(), captured)["public.a"]


@pytest.mark.slow
def test_h327_a_renamed_column_is_found_by_the_next_deploy(pipeline: Pipeline) -> None:
    """Debezium masks by the names of now. Its records are as the manual says, until then."""
    pipeline.document["tables"] = {"public.a": {"columns": {"v": "truncate:28"}}}
    pipeline.connector().deploy()
    pipeline.run(f"insert into a values (1, '{LONG}')")
    pipeline.arrived("public.a", 1, 60)
    pipeline.run("alter table a rename v to w", f"insert into a values (2, '{LONG}')")
    (_, renamed) = next(one for one in pipeline.arrived("public.a", 2, 60) if one[0]["id"] == 2)
    assert renamed.get("payload", renamed)["after"]["w"] == LONG
    with pytest.raises(ConfigError, match="the settings mask"):
        pipeline.connector().deploy()
    pipeline.document["tables"] = {"public.a": {"columns": {"w": "truncate:28"}}}
    assert pipeline.connector().deploy().remasked == ("public.a",)
    pipeline.run(f"insert into a values (3, '{LONG}')")

    def streamed() -> bool:
        rows = [value.get("payload", value)["after"] for _, value in pipeline.records("public.a")]
        found = {row["id"]: row.get("w") for row in rows}
        assert found[3] == SHOWN
        return True

    wait_until(streamed, 30, "the rows behind the deploy")


@pytest.mark.slow
def test_h324_verify_counts_as_debezium_does(pipeline: Pipeline) -> None:
    pipeline.document["tables"] = {"public.a": {"columns": {"v": "truncate:28"}}}
    texts = ["😀" * 20, "a" * 26 + "😀b", "a" * 27 + "😀b", "ł" * 30]
    pipeline.run(*(f"insert into a values ({place}, '{text}')" for place, text in enumerate(texts)))
    pipeline.connector().deploy()

    def said() -> list[bytes]:
        found = everything(pipeline)[f"{pipeline.settings().name}.public.a"]
        assert len(found) == len(texts)
        return found

    wrappings = Wrappings()
    rows = [wrappings.unwrap(raw.partition(b"}")[2]).payload["after"] for raw in wait_until(said, 60, "the rows")]
    mask = masks_of(pipeline.settings()).function("truncate:28")
    assert {row["id"]: row["v"] for row in rows} == {
        place: mask(text.encode()).decode() for place, text in enumerate(texts)
    }
    assert [row["v"] for row in rows if row["id"] == 2] == ["a" * 27]
