"""Requests are data: nothing that others write to the state topic reaches Postgres as SQL, or an error as a value."""

from __future__ import annotations

import orjson
import pytest

from cdc.record.state import requests_of
from cdc.wiring import open_state
from tests.integration.capture.later import ask, over, reread, same
from tests.integration.capture.pipeline import Pipeline
from tests.programs import RunCdc

TABLE = "create table t (id int primary key, v text, n int)"
HOSTILE = [
    "true; select pg_drop_replication_slot('{slot}')",
    "id = 3) or (id = 4",
    "pg_drop_replication_slot('{slot}') is not null",
    "id = (select 1 / 0)",
    "v::int = 5",
    "true) to stdout; drop table t; copy (select 1",
]


@pytest.mark.slow
def test_h111_no_text_of_the_state_topic_is_evaluated(pipeline: Pipeline, run_cdc: RunCdc) -> None:
    """Each record that anybody with rights on the topic could write is refused; the stream goes on."""
    foreign = f"{pipeline.slot}_foreign"
    pipeline.execute(TABLE, "insert into t select n, 'secret ' || n, n from generate_series(1, 9) n")
    pipeline.prepare()
    pipeline.execute(f"select pg_create_logical_replication_slot('{foreign}', 'pgoutput')")
    try:
        with pipeline.capturing() as capturing:
            hostile = [text.format(slot=foreign) for text in HOSTILE]
            asked = [ask(pipeline, id=f"hostile {n}", where=text) for n, text in enumerate(hostile)]
            asked.append(ask(pipeline, id="unknown", where="other = 1"))
            asked.append(ask(pipeline, id="table", table='t"; drop table t; --'))
            refused = [over(pipeline, request) for request in asked[:-1]]
            open_state(pipeline.settings).write(
                [
                    (b"no JSON", b"{}"),
                    (b'["a list"]', b"{}"),
                    (orjson.dumps({"what": "request", "id": "broken"}), b'{"id": 7}'),
                    (orjson.dumps({"what": "request", "id": "no json"}), b"{"),
                    (
                        orjson.dumps({"what": "request", "id": "types"}),
                        orjson.dumps({**orjson.loads(asked[0].to_json()), "id": "types", "keys": [[{"a": 1}]]}),
                    ),
                ]
            )
            good = over(pipeline, ask(pipeline, where="v like 'secret %' and id between 2 and 4 and n = id"))
            status = run_cdc("--config", pipeline.config(), "status")
            waiting = reread(pipeline, "table")
            assert capturing.error is None
        assert {state.state for state in refused} == {"failed"}
        assert (good.state, good.rows) == ("done", 3)
        assert waiting is None or waiting.state == "waiting"
        assert status.returncode in (0, 1), status.stderr
        assert {request.id for request in requests_of(pipeline.state())} == {"table"}
        assert pipeline.one("select count(*) from pg_replication_slots where slot_name = %s", foreign) == 1
        assert pipeline.one("select count(*) from t") == 9
    finally:
        pipeline.execute(f"select pg_drop_replication_slot('{foreign}')")


@pytest.mark.slow
def test_h111_the_command_refuses_what_the_reader_would(pipeline: Pipeline, run_cdc: RunCdc) -> None:
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t values (1, 'secret', 1)")

    def refused(condition: str) -> str:
        done = run_cdc("--config", pipeline.config(), "snapshot", "t", "--detach", "--where", condition)
        assert done.returncode == 78, done.stderr
        return done.stderr

    for condition in ("id = 3) or (id = 4", "v::int = 5", "nextval('s') > 1", "v > 5", "id = 'x'", "v"):
        assert "condition" in refused(condition)
        assert "secret" not in refused(condition)
    assert not requests_of(pipeline.state())
    done = run_cdc("--config", pipeline.config(), "snapshot", "t", "--detach", "--where", "ID=1 AND v<>'x'")
    assert done.returncode == 0, done.stderr
    assert [request.where for request in requests_of(pipeline.state())] == ["""("id" = 1 and "v" <> 'x')"""]


@pytest.mark.slow
def test_h111_a_failing_read_names_no_value(pipeline: Pipeline) -> None:
    """A key that is none of its type fails its request, with a code and no value."""
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t select n, 'secret', n from generate_series(1, 3) n")
    with pipeline.capturing():
        pipeline.settle()
        failed = over(pipeline, ask(pipeline, id="keys", keys=[["1"], ["secret"]]))
        assert failed.state == "failed"
        assert "22P02" in failed.detail
        assert "secret" not in str(pipeline.state().values())
        pipeline.execute("insert into t values (4, 'after', 4)")
        pipeline.settle()
    same(pipeline)
