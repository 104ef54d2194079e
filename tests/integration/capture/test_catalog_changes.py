"""Changes of the catalog that ask for no reading, and one of a key's constraint that does."""

from __future__ import annotations

import pytest

from cdc.record.schema import TableSchema
from cdc.record.topic_names import schema_topic
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from tests.integration.capture.later import reread
from tests.integration.capture.pipeline import Pipeline
from tests.integration.capture.test_watch import assert_same, watched
from tests.waiting import wait_until


def versions(pipeline: Pipeline) -> list[TableSchema]:
    """The shapes that the log knows of the table ``t``, older ones first."""
    registry = SchemaRegistry(KafkaCompactedTopic(pipeline.settings.log, schema_topic(pipeline.name)))
    return sorted((one for one in registry.versions() if one.table.table == "t"), key=lambda one: one.version)


@pytest.mark.slow
def test_h96_rights_vacuum_and_analyze_ask_for_no_reading(pipeline: Pipeline) -> None:
    """They write the table's entry in the catalog anew, and change none of its rows."""
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare("create table kept (id int primary key, v int)", "create table marker (id int primary key, v int)")
    with pipeline.capturing():
        pipeline.execute(*(f"insert into {name} values (1, 1), (2, 2)" for name in ("kept", "marker")))
        pipeline.settle()
        watched(pipeline, "kept", "marker")
        pipeline.execute(
            "grant select on kept to public",
            "revoke select on kept from public",
            "grant select (v) on kept to public",
            "delete from kept where id = 2",
            "vacuum kept",
            "vacuum (freeze) kept",
            "analyze kept",
            "alter table kept set (fillfactor = 90)",
            "comment on table kept is 'kept'",
            # A look has seen all of it, once it has seen this.
            "alter table marker alter v type bigint using v + 1",
        )
        assert_same(pipeline, "marker", "kept")
        assert reread(pipeline, "snapshot:public.marker") is not None
        watched(pipeline, "kept", "marker")
        assert reread(pipeline, "snapshot:public.kept") is None


@pytest.mark.slow
def test_h41_h118_a_key_that_becomes_deferrable_is_a_new_version(pipeline: Pipeline) -> None:
    """Whether a transaction's changes of a key are netted is part of a version. The table is read again behind both."""
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare("create table t (id int primary key, v text)", "alter table t replica identity full")
    key = "alter table t drop constraint t_pkey, add primary key (id)"
    with pipeline.capturing() as capturing:
        pipeline.execute("insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
        pipeline.settle()
        watched(pipeline, "t")
        pipeline.execute(f"{key} deferrable initially deferred", "update t set id = 4 - id")
        pipeline.settle()
        assert [one.deferrable_key for one in versions(pipeline)] == [False, True]
        wait_until(lambda: reread(pipeline, "snapshot:public.t"), 40)
        assert_same(pipeline, "t")
        watched(pipeline, "t")
        first = reread(pipeline, "snapshot:public.t")
        assert first is not None
        pipeline.execute(key, "update t set v = v || v")
        pipeline.settle()
        assert [one.deferrable_key for one in versions(pipeline)] == [False, True, False]

        def again() -> bool:
            found = reread(pipeline, "snapshot:public.t")
            return found is not None and found.serial != first.serial

        wait_until(again, 40)
        assert_same(pipeline, "t")
        watched(pipeline, "t")
        assert capturing.figures.reconnects == 0
