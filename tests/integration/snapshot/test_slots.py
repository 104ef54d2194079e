"""Slots of the wanted name that somebody else made."""

from __future__ import annotations

from dataclasses import replace

import psycopg

from cdc.errors import SlotError
from cdc.state import SlotIntent
from cdc.wiring import open_state
from tests.integration.snapshot.pipeline import Pipeline
from tests.integration.snapshot.test_refusals import THREE_ROWS, refusal, walsender
from tests.programs import Spawn
from tests.waiting import wait_until


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
