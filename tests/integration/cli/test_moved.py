"""A native pipeline whose table gets another topic: refused until a new epoch fills it."""

from __future__ import annotations

import pytest

from cdc.errors import Exit
from cdc.settings import parse
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted import read_range
from tests.integration.cli.pipeline import Pipeline, assert_refused


@pytest.mark.slow
def test_h197_a_new_epoch_fills_the_topic_of_a_moved_table(pipeline: Pipeline) -> None:
    name = pipeline.document["name"]
    pipeline.good("init")
    pipeline.good("snapshot")
    pipeline.document["source"]["topics"] = {"public.orders": f"{name}.moved"}
    said = f"the rows of public.orders are in the topic {name}.public.orders, and the settings name {name}.moved"
    cure = "cdc init --new-epoch, then cdc snapshot"
    assert_refused(pipeline.cdc("init"), Exit.CONFIG, said, "put it back", cure)
    assert_refused(pipeline.cdc("check"), Exit.CONFIG, said, cure)
    assert said in pipeline.cdc("diff").stdout

    pipeline.good("init", "--new-epoch", "--yes")
    pipeline.good("snapshot")
    pipeline.good("check")
    settings = parse(pipeline.document)
    counts = TopicAdmin(settings.log).counts([f"{name}.moved"])
    records = [m for p in range(counts[f"{name}.moved"]) for m in read_range(settings.log, f"{name}.moved", p)]
    assert b'{"id":42}' in {message.key() for message in records if message.value()}

    del pipeline.document["source"]["topics"]
    assert_refused(pipeline.cdc("init"), Exit.CONFIG, f"{name}.public.orders, which holds records from before")
