"""What goes wrong within a reading is that reading's: it fails, waits or begins anew, and the stream goes on."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.state import CommandState, RequestState
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS
from cdc.wiring import open_state
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.server.catalog_shapes import table_schema
from connectors.postgres.server.connections import connect
from snapshot.later.window_read import WindowTask, read
from snapshot.source.inspection import leaf_rows
from snapshot.source.planned_tables import Chunk, LeafForm
from snapshot.source.read_transaction import Changed
from tests.integration.capture.later import ask, over, reread, same
from tests.integration.capture.pipeline import Capturing, Pipeline
from tests.waiting import wait_until

ROWS = "insert into {0} select n, repeat('x', 100) from generate_series(1, 800) n"
CHANGES = {
    "dropped": "drop table dropped",
    "renamed": "alter table renamed rename to other",
    "truncated": "truncate truncated",
    "retyped": "alter table retyped alter v type varchar(200) using v || '!'",
    "narrowed": "alter table narrowed drop column v",
    "keyed": "alter table keyed replica identity full",
    "vacuumed": "vacuum full vacuumed",
    "parts": "alter table parts detach partition parts_1",
}

GRANT = 'answers 42501 (insufficient privilege); grant select on "public"."revoked" to "r'
REFUSED = {"revoked": GRANT, "hidden": "row security", "divided": "22012", "calm": ""}


def command(pipeline: Pipeline, request: RequestState, state: str) -> None:
    """What ``cdc snapshot --pause`` and its like write."""
    wanted = CommandState(id=request.id, serial=request.serial, state=state)
    open_state(pipeline.settings).write([(wanted.key(), wanted.to_json())])


def streams(pipeline: Pipeline, capturing: Capturing) -> None:
    """The same session streams on."""
    pipeline.settle(60)
    assert (capturing.error, capturing.figures.reconnects) == (None, 0)


@pytest.mark.slow
def test_h117_a_table_changed_while_it_is_read_delays_no_stream(pipeline: Pipeline) -> None:
    """DROP, RENAME, TRUNCATE, ALTER, VACUUM FULL, DETACH and another replica identity, each after some parts."""
    pipeline.document["snapshot"] = {"watch": "0s", "window_bytes": "8kB", "rows_per_second": 4000}
    tables = [name for name in CHANGES if name != "parts"]
    pipeline.prepare(
        *(f"create table {name} (id int primary key, v text)" for name in tables),
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (400)",
        "create table parts_2 partition of parts for values from (400) to (9000)",
        "create table calm (id int primary key, v text)",
    )
    pipeline.execute(*(ROWS.format(name) for name in [*CHANGES, "calm"]))
    with pipeline.capturing() as capturing:
        pipeline.settle()
        asked = {name: ask(pipeline, f"public.{name}") for name in [*CHANGES, "calm"]}

        def begun(name: str) -> bool:
            found = reread(pipeline, asked[name].id)
            return found is not None and found.rows > 0

        for name, change in CHANGES.items():
            wait_until(lambda name=name: begun(name), 60)  # type: ignore[misc]
            pipeline.execute(change)
        lost = {name: no_more(pipeline, asked.pop(name)) for name in ("dropped", "renamed")}
        ended = {name: over(pipeline, request, 90) for name, request in asked.items()}
        streams(pipeline, capturing)
    assert all(re.search("is gone|is set aside", detail) for detail in lost.values()), lost
    for name, state in ended.items():
        assert state.state == "done"
        same(pipeline, name)


def no_more(pipeline: Pipeline, request: RequestState) -> str:
    """Why a table that is gone is not read: either the reading met it first, and failed, or the watch set it aside."""

    def detail() -> str | None:
        found = reread(pipeline, request.id)
        unread = found is not None and (found.state == "failed" or "is set aside" in found.detail)
        return found.detail if found is not None and unread else None

    found = wait_until(detail, 90, lambda: reread(pipeline, request.id))
    assert found is not None
    return found


@contextmanager
def reader(pipeline: Pipeline) -> Iterator[str]:
    """A login role that captures and owns nothing; its name. The pipeline uses it meanwhile."""
    name, password = f"r{secrets.token_hex(4)}", secrets.token_hex(8)
    pipeline.execute(
        f"create role {name} login replication password '{password}'",
        f"grant usage on schema public to {name}",
        f"grant select on all tables in schema public to {name}",
    )
    dsn = pipeline.document["source"]["dsn"]
    passfile = pipeline.folder / "pgpass"
    passfile.write_text(f"*:*:*:{name}:{password}\n")
    passfile.chmod(0o600)
    pipeline.document["source"]["dsn"] = make_conninfo(dsn, user=name, passfile=str(passfile))
    try:
        yield name
    finally:
        pipeline.document["source"]["dsn"] = dsn
        pipeline.execute(f"drop owned by {name}", f"drop role {name}")


@pytest.mark.slow
def test_h117_a_reading_that_is_refused_fails_alone(pipeline: Pipeline) -> None:
    """A right revoked, row security put on, a row filter that divides by zero: each is said with its SQLSTATE.

    What the owner has to grant stands in the same line (Y5): the reading's role cannot.
    """
    pipeline.execute(*(f"create table {name} (id int primary key, v text)" for name in REFUSED))
    pipeline.execute(*(ROWS.format(name) for name in REFUSED))
    pipeline.prepare()
    publication = pipeline.settings.publication
    with reader(pipeline) as role, pipeline.capturing() as capturing:
        pipeline.settle()
        pipeline.execute(
            f"revoke select on revoked from {role}",
            "alter table hidden enable row level security",
            "create policy p on hidden using (id = 1)",
            f"alter publication {publication} drop table divided",
            f"alter publication {publication} add table divided where (100 / (id - 5) > 0)",
        )
        ended = {name: over(pipeline, ask(pipeline, f"public.{name}")) for name in REFUSED}
        streams(pipeline, capturing)
    assert {name: state.state for name, state in ended.items()} == {
        name: "done" if name == "calm" else "failed" for name in REFUSED
    }
    said = {name: state.detail for name, state in ended.items()}
    assert all(words in said[name] for name, words in REFUSED.items()), said
    same(pipeline, "calm")


@pytest.mark.slow
def test_h117_sessions_that_end_again_and_again_are_opened_later(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)")
    pipeline.execute(ROWS.format("t"))
    with pipeline.capturing() as capturing:
        pipeline.settle()
        with pipeline.session() as session:
            killing = threading.Thread(target=end_windows, args=(session,))
            killing.start()
            try:
                request = ask(pipeline)
                wait_until(lambda: (found := reread(pipeline, request.id)) and found.state == "waiting", 120)
                streams(pipeline, capturing)
            finally:
                session.cancel()
                killing.join(30)
        assert over(pipeline, request).state == "done"
        streams(pipeline, capturing)
    same(pipeline)


def end_windows(session: psycopg.Connection[Any]) -> None:
    """End every session of a window as soon as it is there, until cancelled."""
    with suppress(psycopg.errors.QueryCanceled):
        session.execute(
            "do $$ begin loop"
            " perform pg_stat_clear_snapshot();"
            " perform pg_terminate_backend(pid) from pg_stat_activity"
            "   where application_name = 'cdc capture window' and datname = current_database();"
            " perform pg_sleep(0.001); end loop; end $$"
        )


@pytest.mark.slow
def test_h99_pausing_leaves_a_newer_request_of_the_watch(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, v text)", ROWS.format("t"))
    first = ask(pipeline, state="paused")
    newer = replace(first, serial=SYSTEM_CLOCK.now_ns(), reason="was rewritten", state="asked")
    open_state(pipeline.settings).write([(newer.key(), newer.to_json())])
    command(pipeline, first, "cancelled")
    with pipeline.capturing():
        assert over(pipeline, newer).state == "done"
    same(pipeline)


@pytest.mark.slow
def test_a_small_request_goes_between_the_parts_of_a_large_one(pipeline: Pipeline) -> None:
    """One reader, and a reading of many parts at a pace: a key is read at once."""
    pipeline.document["snapshot"] = {"watch": "0s", "windows": 1, "window_bytes": "8kB", "rows_per_second": 200}
    pipeline.prepare("create table t (id int primary key, v text)", "create table u (id int primary key, v text)")
    pipeline.execute(ROWS.format("t"), "insert into u values (1, 'v')")
    with pipeline.capturing():
        pipeline.settle()
        large = ask(pipeline)
        wait_until(lambda: (found := reread(pipeline, large.id)) and found.rows > 0, 30)
        assert over(pipeline, ask(pipeline, "public.u", id="small", keys=[["1"]])).rows == 1
        left = reread(pipeline, large.id)
        assert left is not None
        assert not left.over
        command(pipeline, large, "cancelled")
        over(pipeline, large)


@pytest.mark.slow
def test_h117_a_row_too_large_for_its_topic_fails_its_reading(pipeline: Pipeline) -> None:
    """The stream stops at such a row. A reading of it, which somebody asked for, stops nothing."""
    pipeline.document["log"] |= {"max_message_bytes": "100kB", "oversized": "stop"}
    pipeline.execute("create table t (id int primary key, v text)", ROWS.format("t"))
    pipeline.execute("insert into t values (0, repeat('x', 200000)), (-1, repeat('x', 2000000))")
    pipeline.prepare()
    with pipeline.capturing() as capturing:
        failed = over(pipeline, ask(pipeline))
        part = over(pipeline, ask(pipeline, id="part", where="id > 0"))
        streams(pipeline, capturing)
    assert failed.state == "failed"
    assert "102,400" in failed.detail
    assert (part.state, part.rows) == ("done", 800)


@pytest.mark.slow
def test_h86_a_partition_that_was_detached_is_read_no_more(pipeline: Pipeline) -> None:
    """Its rows would stand at the floor of the reading that its detaching asks for, or above, and stay."""
    pipeline.execute(
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table middle partition of parts for values from (0) to (1000) partition by range (id)",
        "create table low partition of middle for values from (0) to (500)",
        "insert into parts select n, 'v' from generate_series(0, 9) n",
    )
    oid = {name: pipeline.one("select to_regclass(%s)::oid::int8", f"public.{name}") for name in ("parts", "low")}
    settings = pipeline.settings
    with closing(connect(settings.source)) as session:
        shape = table_schema(session, oid["parts"], topic="t", encoding="readable", masks=NO_MASKS)
        (found,) = leaf_rows(session, [oid["low"]])
        leaf = LeafForm(
            oid=found.oid,
            table=TableName("public", "low"),
            filenode=found.filenode,
            heap_blocks=found.heap_blocks,
            size_bytes=found.size_bytes,
        )
        task = WindowTask(chunk=Chunk(leaf=leaf), schema=shape, partitioned=True)
        encoder = compile_table(shape, name="shop", database="shop", masks=NO_MASKS)
        assert len(read(session, task, encoder, lambda _: True).rows) == 10
        pipeline.execute("alter table parts detach partition middle")
        with pytest.raises(Changed, match="no partition"):
            read(session, task, encoder, lambda _: True)
