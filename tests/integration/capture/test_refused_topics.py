"""A topic that Kafka never makes is its table's fault alone (H188)."""

from __future__ import annotations

import pytest

from cdc.record.tables_aside import Cause
from tests.integration.capture.pipeline import Pipeline
from tests.integration.capture.test_aside import aside, follows, is_aside
from tests.waiting import wait_until


@pytest.mark.slow
def test_h188_a_topic_that_kafka_refuses_holds_up_no_other_table(pipeline: Pipeline) -> None:
    """Two names that differ in a dot and an underscore alone are one to Kafka. The table comes while capture runs."""
    pipeline.prepare('create table "a.b" (id int primary key)', "create table free (id int primary key)")
    with pipeline.capturing() as capturing:
        pipeline.execute(
            "create table a_b (id int primary key)",
            f"alter publication {pipeline.settings.publication} add table a_b",
            "insert into a_b values (1)",
            "insert into free values (1)",
        )
        is_aside(pipeline, Cause.CHANGED, "public.a_b")
        pipeline.settle()
        assert pipeline.shorts("free") == ['c {"id":1}']
        found = aside(pipeline, "public.a_b")
        assert found is not None and "Kafka refuses it" in found.detail
        # Under another name it is a table as any other.
        pipeline.execute("alter table a_b rename to fresh", "insert into fresh values (2)")
        wait_until(lambda: "public.fresh" in pipeline.topics().tables, 40)
        follows(pipeline, "fresh")
        assert capturing.figures.reconnects == 0
