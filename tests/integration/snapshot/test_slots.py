"""Slots of the wanted name that somebody else made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import psycopg
import pytest

from cdc.process.errors import LogError, SlotError
from cdc.record.state import SlotIntent
from cdc.record.topic_names import state_topic
from cdc.wiring import open_state
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.topic_problems import TopicFacts
from connectors.operate.init import Prepared, prepare
from tests.integration.snapshot.pipeline import Pipeline
from tests.integration.snapshot.test_refusals import THREE_ROWS, refusal, walsender
from tests.programs import Spawn
from tests.waiting import wait_until


@pytest.mark.slow
def test_h24_a_slot_that_somebody_else_made_is_left_alone(pipeline: Pipeline, spawn: Spawn) -> None:
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    pipeline.document["snapshot"]["lock_timeout"] = "500ms"
    with psycopg.connect(pipeline.dsn) as open_one:
        open_one.execute("insert into t values (10, 'open')")
        wait_until(lambda: refusal(pipeline) is not None and pipeline.intent() is None, 30, lambda: "an intent is left")
    slot = pipeline.settings.slot
    pipeline.one("select pg_create_logical_replication_slot(%s, 'pgoutput')::text", slot)
    assert "did not make it" in refusal(pipeline).message
    server = pipeline.one("select system_identifier::text from pg_control_system()")
    database = pipeline.one("select current_database()::text")
    killed = SlotIntent(epoch=1, system_identifier=server, database=database, slot=slot)
    open_state(pipeline.settings).write([(killed.key(), killed.to_json())])
    foreign = int(
        pipeline.one("select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s", slot)
    )
    assert "did not make it" in refusal(pipeline).message, "it stands idle, and a run of ours was killed before its own"
    elsewhere = replace(killed, consistent_point=foreign - 8)
    open_state(pipeline.settings).write([(elsewhere.key(), elsewhere.to_json())])
    assert "did not make it" in refusal(pipeline).message
    reader = spawn(
        *("pg_recvlogical", "-d", pipeline.dsn, "-S", slot, "--start", "-f", "-"),
        *("-o", "proto_version=1", "-o", f"publication_names={pipeline.settings.publication}"),
    )
    wait_until(lambda: walsender(pipeline) is not None, 30, lambda: reader.stderr)
    pid = walsender(pipeline)
    error = refusal(pipeline)
    assert isinstance(error, SlotError)
    assert "did not make it" in error.message
    assert walsender(pipeline) == pid, "its session goes on"


class Lagging(TopicAdmin):
    """A broker that knows no topics at its first questions."""

    def __init__(self, pipeline: Pipeline, questions: int) -> None:
        super().__init__(pipeline.settings.log)
        self._left = questions

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        self._left -= 1
        return {} if self._left >= 0 else super().describe(topics)


def init_by(pipeline: Pipeline, questions: int) -> Prepared:
    settings = pipeline.settings
    state = KafkaCompactedTopic(settings.log, state_topic(settings.name))
    with pipeline.session() as session:
        return prepare(session, settings, Lagging(pipeline, questions), state)


@pytest.mark.slow
def test_h591_init_knows_its_own_slot_by_a_broker_that_lags(pipeline: Pipeline) -> None:
    """It said that the slot is not the pipeline's, and how to drop it."""
    pipeline.execute(*THREE_ROWS)
    pipeline.prepare()
    noted = open_state(pipeline.settings).read()
    with pytest.raises(LogError, match="did not know the topic"):
        init_by(pipeline, 1)
    assert open_state(pipeline.settings).read() == noted
    pipeline.run()
    assert init_by(pipeline, 2).topics_made == ()
