"""Later snapshots: tables read again in windows of the running stream."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace

import orjson
import pytest

from cdc.figures.capture_server import CaptureCollector
from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.position import CHUNK_SEQ, Position
from cdc.record.state import FormState, ReadingState, RequestState, find_all
from cdc.wiring import open_state
from cdc.wiring.pipeline import prepare_pipeline
from tests.integration.capture.later import ask, over, reread, same, source, swept
from tests.integration.capture.pipeline import Pipeline
from tests.programs import RunCdc
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"


@pytest.mark.slow
def test_a_table_is_read_again_while_its_rows_change(pipeline: Pipeline) -> None:
    """Rows that were never streamed come; what changes meanwhile stands as the stream says."""
    pipeline.document["snapshot"] = {"window_bytes": "64kB"}
    pipeline.execute(TABLE, "insert into t select n, repeat('x', 100) from generate_series(1, 20000) n")
    pipeline.prepare()
    stop = threading.Event()

    def write() -> None:
        with pipeline.session() as session:
            number = 0
            while not stop.is_set():
                number += 1
                key = number * 7919 % 20000 + 1
                session.execute("update t set v = %s where id = %s", [f"new {number}", key])
                session.execute("delete from t where id = %s", [key * 31 % 20000 + 1])
                session.execute(
                    "insert into t values (%s, 'again') on conflict (id) do nothing", [key * 17 % 20000 + 1]
                )

    with pipeline.capturing():
        writer = threading.Thread(target=write)
        writer.start()
        try:
            state = over(pipeline, ask(pipeline))
        finally:
            stop.set()
            writer.join()
        pipeline.settle()
    assert state.state == "done", state
    assert state.share == 1.0
    same(pipeline)
    chunk = [record for record in pipeline.records("t") if record.op == "r"]
    assert {record.pos.tx_seq for record in chunk} == {CHUNK_SEQ}
    assert {record.value["source"]["snapshot"] for record in chunk} == {"incremental"}
    assert state.rows == len(chunk)


@pytest.mark.slow
def test_a_condition_or_keys_read_a_part_and_sweep_nothing(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE, "create table u (a text, b int, v text, primary key (a, b))")
    pipeline.execute("insert into t select n, 'v' from generate_series(1, 9) n", "insert into u values ('x:y', 1, 'v')")
    with pipeline.capturing():
        pipeline.settle()
        some = ask(pipeline, id="some", where="id in (3, 6, 9)")
        keys = ask(pipeline, "public.u", id="keys", keys=[["x:y", "1"], ["gone", "007"]])
        wrong = ask(pipeline, "public.u", id="wrong", keys=[["x:y", "no number"]])
        assert over(pipeline, some).rows == 3
        assert over(pipeline, keys).rows == 3
        failed = over(pipeline, wrong)
    assert failed.state == "failed"
    assert "22P02" in failed.detail
    assert "no number" not in failed.detail
    assert not find_all(pipeline.state(), RequestState)
    assert sorted(r.key for r in pipeline.records("t") if r.op == "r") == ['{"id":3}', '{"id":6}', '{"id":9}']
    gone = [record for record in pipeline.records("u") if record.key == '{"a":"gone","b":7}']
    assert [(record.op, record.value is None) for record in gone] == [("d", False), ("d", True)]
    assert not [record for record in pipeline.records("t") if record.op == "t"]
    same(pipeline, "t")
    same(pipeline, "u")


@pytest.mark.slow
def test_a_resting_watch_reads_nothing_again_but_what_is_asked(pipeline: Pipeline) -> None:
    """``watch = "0s"``, as all tests of this folder have it that do not say otherwise."""
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t select n, 'v' from generate_series(1, 5) n")
    with pipeline.capturing():
        pipeline.settle()
        pipeline.execute("alter table t alter column v type varchar(20) using v || '!'")
        pipeline.settle()
        assert not find_all(pipeline.state(), RequestState)
        again = ask(pipeline, id="again")
        assert over(pipeline, again).rows == 5
    assert not find_all(pipeline.state(), FormState)
    same(pipeline)


@pytest.mark.slow
def test_h23_what_was_deleted_unseen_is_swept(pipeline: Pipeline) -> None:
    """The table leaves the publication, loses rows and comes back: the watch asks for it by itself."""
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.execute("insert into t select n, 'v' from generate_series(1, 50) n")
        pipeline.settle()
        publication = pipeline.settings.publication
        wait_until(lambda: "form" in str(list(pipeline.state())), 20)
        pipeline.execute(f"alter publication {publication} drop table t", "delete from t where id > 10")
        pipeline.execute("insert into t values (99, 'unseen')")
        pipeline.settle()
        assert len(swept(pipeline, "t")) == 50
        wait_until(lambda: '"publication":""' in str(list(pipeline.state().values())), 20)
        pipeline.execute(f"alter publication {publication} add table t")
        wait_until(lambda: sorted(swept(pipeline, "t")) == sorted(f'{{"id":{n}}}' for n in [*range(1, 11), 99]), 40)
        wait_until(lambda: not find_all(pipeline.state(), RequestState), 20)
    same(pipeline)
    state = reread(pipeline, "snapshot:public.t")
    assert state is not None
    assert state.state == "done"
    marks = [record for record in pipeline.records("t") if record.op == "t"]
    assert {record.partition for record in marks} == {0, 1, 2}
    assert {record.value["sweep"]["floor"] for record in marks} == {state.floor}


@pytest.mark.slow
def test_h85_h86_what_no_event_tells_is_read_again(pipeline: Pipeline) -> None:
    pipeline.document["source"]["exclude"] = ["public.parts_3"]
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare(
        "create table used (id int primary key, v int)",
        "create table again (id int primary key, v int, w text)",
        "create table filled (id int primary key)",
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (10)",
        "create table parts_2 partition of parts for values from (10) to (20)",
        "create table parts_3 (id int primary key, v text)",
    )
    names = ["used", "again", "filled", "parts"]
    with pipeline.capturing():
        pipeline.execute(
            "insert into used select n, n from generate_series(1, 20) n",
            "insert into again select n, n, 'w' from generate_series(1, 20) n",
            "insert into filled select n from generate_series(1, 20) n",
            "insert into parts select n, 'v' from generate_series(1, 19) n",
            "insert into parts_3 select n, 'v' from generate_series(20, 29) n",
        )
        pipeline.settle()
        wait_until(lambda: len([key for key in pipeline.state() if b'"form"' in key]) >= 4, 20)
        pipeline.execute(
            "alter table used alter v type int using v * 100",
            "alter table again drop column v, add column v int default 7",
            "alter table filled add column d text default 'filled'",
            "alter table parts detach partition parts_1",
            "alter table parts attach partition parts_3 for values from (20) to (30)",
        )
        for name in names:
            want = sorted(source(pipeline, name), key=repr)
            wait_until(
                lambda name=name, want=want: sorted(swept(pipeline, name).values(), key=repr) == want,  # type: ignore[misc]
                60,
                lambda name=name: f"{name}: {reread(pipeline, f'snapshot:public.{name}')}",  # type: ignore[misc]
            )
        wait_until(lambda: not find_all(pipeline.state(), RequestState), 30)
    for name in names:
        same(pipeline, name)


@pytest.mark.slow
def test_a_reading_shows_in_the_metrics_and_is_forgotten_at_last(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key)", "insert into t select generate_series(1, 100)")
    long_ago = ReadingState(
        id="snapshot:public.t:keys:1", table="public.t", serial=1, epoch=1, state="done", finished_ns=1
    )
    open_state(pipeline.settings).write([(long_ago.key(), long_ago.to_json())])
    paused = ask(pipeline, "public.t", state="paused")
    with pipeline.capturing() as capturing:
        wait_until(lambda: capturing.figures.rereads().states == {"paused": 1}, 20)
        assert capturing.figures.rereads().shares == {"public.t": 0.0}
        open_state(pipeline.settings).write([(paused.key(), replace(paused, state="asked").to_json())])
        over(pipeline, paused)
        wait_until(lambda: capturing.figures.rereads().states == {}, 20)
        shown = list(CaptureCollector(capturing.figures, SYSTEM_CLOCK).collect())
        values = {sample.name: sample.value for metric in shown for sample in metric.samples}
        assert (values["cdc_reread_rows_total"], values["cdc_reread_windows"]) == (100, 0)
        wait_until(lambda: long_ago.key() not in pipeline.state(), 20)
        assert reread(pipeline, paused.id) is not None


@pytest.mark.slow
def test_h85_only_a_rewrite_that_changes_values_is_read_again(pipeline: Pipeline) -> None:
    """VACUUM FULL, CLUSTER and TRUNCATE give a table another file as well; in between ``using`` keeps the type."""
    pipeline.document["snapshot"] = {"watch": "100ms"}
    moved = ["vacuumed", "clustered", "truncated", "analysed"]
    changed = ["used", "volatile", "parts"]
    generates = int(pipeline.one("select current_setting('server_version_num')")) >= 180000
    pipeline.prepare(
        *(f"create table {name} (id int primary key, v int)" for name in [*moved, *changed[:2]]),
        "create table parts (id int primary key, v int) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (100)",
    )
    if generates:
        changed.append("generated")
        pipeline.execute("create table generated (id int primary key, v int, w int generated always as (v + 1) stored)")
        pipeline.execute(f"alter publication {pipeline.settings.publication} set (publish_generated_columns = stored)")
        prepare_pipeline(pipeline.settings)
    with pipeline.capturing():
        for name in [*moved, *changed]:
            pipeline.execute(f"insert into {name} (id, v) select n, n from generate_series(1, 20) n")
        pipeline.settle()

        def noted() -> dict[str, FormState]:
            return {form.table: form for form in find_all(pipeline.state(), FormState)}

        wait_until(lambda: all(f"public.{name}" in noted() for name in [*moved, *changed]), 20)
        wait_until(lambda: not find_all(pipeline.state(), RequestState), 30)
        before, read = noted(), {one.id: one.serial for one in find_all(pipeline.state(), ReadingState)}
        pipeline.execute(
            "vacuum full vacuumed",
            "cluster clustered using clustered_pkey",
            "vacuum full analysed",
            "analyze analysed",
            "alter table volatile add column w float default random()",
            "alter table used alter v type int using v * 2",
            "truncate parts_1",
            *(["alter table generated alter w set expression as (v * 3)"] if generates else []),
        )
        pipeline.transaction("truncate truncated", "insert into truncated select n, 7 from generate_series(1, 5) n")
        for name in [*moved, *changed]:
            table = f"public.{name}"
            wait_until(lambda table=table: noted()[table].leaves != before[table].leaves, 30)  # type: ignore[misc]
        for name in changed:
            wait_until(
                lambda name=name: (
                    (found := reread(pipeline, f"snapshot:public.{name}"))  # type: ignore[misc]
                    and found.over
                    and found.serial != read.get(found.id)
                ),
                40,
                name,
            )
        pipeline.settle()
        for name in moved:
            assert reread(pipeline, f"snapshot:public.{name}") is None, name
    for name in [*moved, *changed]:
        same(pipeline, name)


@pytest.mark.slow
@pytest.mark.parametrize("goes", ["alter table parts detach partition parts_1", "drop table parts_1"])
def test_h86_rows_of_the_last_partition_go_with_it(pipeline: Pipeline, goes: str) -> None:
    """Nothing is left to be read then, and the sweep has to say so; rows that come later stay."""
    pipeline.document["snapshot"] = {"watch": "200ms"}
    pipeline.prepare(
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (10)",
    )
    with pipeline.capturing():
        pipeline.execute("insert into parts select n, 'v' from generate_series(1, 9) n")
        pipeline.settle()
        wait_until(lambda: any(b'"form"' in key for key in pipeline.state()), 20)
        pipeline.execute(goes)
        wait_until(lambda: swept(pipeline, "parts") == {}, 40, lambda: reread(pipeline, "snapshot:public.parts"))
        wait_until(lambda: not find_all(pipeline.state(), RequestState), 30)
        again = over(pipeline, ask(pipeline, "public.parts"))
        assert (again.rows, again.share, Position.parse(again.floor).epoch) == (0, 1.0, 1)
        pipeline.execute("create table parts_2 partition of parts for values from (10) to (20)")
        pipeline.execute("insert into parts select n, 'w' from generate_series(10, 19) n")
        over(pipeline, ask(pipeline, "public.parts"))
        pipeline.settle()
    same(pipeline, "parts")
    assert len(swept(pipeline, "parts")) == 10


@pytest.mark.slow
def test_h29_a_table_that_comes_with_rows_is_captured_and_read(pipeline: Pipeline) -> None:
    """Under a publication for all tables: its rows from before the settings took it, and its changes since."""
    pipeline.document["snapshot"] = {"watch": "300ms"}
    pipeline.execute(
        f"create publication {pipeline.settings.publication} for all tables with (publish_via_partition_root = true)"
    )
    pipeline.prepare(TABLE)
    with pipeline.capturing():
        pipeline.transaction("create table u (id int primary key)", "insert into u select generate_series(1, 100)")
        pipeline.execute("insert into u values (101)", "delete from u where id = 5")
        wait_until(lambda: reread(pipeline, "snapshot:public.u"), 30)
        wait_until(lambda: not find_all(pipeline.state(), RequestState), 30)
        pipeline.execute("insert into t values (1, 'v')", "create table silent (id int primary key)")
        pipeline.settle()
    same(pipeline, "u")
    state = reread(pipeline, "snapshot:public.u")
    assert state is not None
    assert (state.state, state.first) == ("done", True)


@pytest.mark.slow
def test_a_request_waits_while_paused_and_ends_when_cancelled(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"window_bytes": "8kB", "rows_per_second": 300}
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t select n, repeat('x', 100) from generate_series(1, 3000) n")
    with pipeline.capturing():
        pipeline.settle()
        first = ask(pipeline)
        wait_until(lambda: (found := reread(pipeline, first.id)) and found.rows, 20)
        command(pipeline, first, "paused")
        wait_until(lambda: (found := reread(pipeline, first.id)) and found.state == "paused", 20)
        command(pipeline, first, "asked")
        wait_until(lambda: (found := reread(pipeline, first.id)) and found.state == "running", 20)
        command(pipeline, first, "cancelled")
        ended = over(pipeline, first)
    assert ended.state == "cancelled"
    assert 0 < ended.rows < 3000
    assert not [record for record in pipeline.records("t") if record.op == "t"]


def command(pipeline: Pipeline, request: RequestState, state: str) -> None:
    wanted = replace(request, state=state)
    open_state(pipeline.settings).write([(wanted.key(), wanted.to_json())])


POINTS = ["window_locked", "window_seen", "window_closed", "reread_noted:2", "window_read:3", "reread_swept"]


@pytest.mark.slow
def test_killed_anywhere_the_next_capture_goes_on(pipeline: Pipeline) -> None:
    pipeline.document["snapshot"] = {"window_bytes": "32kB"}
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t select n, repeat('x', 100) from generate_series(1, 4000) n")
    request = ask(pipeline)
    for point in POINTS:
        run = pipeline.start(crash_at=point)
        assert run.wait(60) == 137, run.stderr
        pipeline.execute("update t set v = v || '!' where id % 7 = 0", "delete from t where id % 501 = 0")
    pipeline.stream()
    state = over(pipeline, request)
    pipeline.settle()
    assert state.state == "done"
    same(pipeline)


@pytest.mark.slow
def test_the_command_asks_follows_and_tells(pipeline: Pipeline, run_cdc: RunCdc) -> None:
    pipeline.prepare(TABLE)
    pipeline.execute("insert into t select n, 'v' from generate_series(1, 30) n")
    config = pipeline.config()

    def cdc(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_cdc("--config", config, *arguments)

    asked = cdc("snapshot", "t", "--detach")
    assert asked.returncode == 0, asked.stderr
    assert "asked for" in asked.stderr
    paused = cdc("snapshot", "--pause")
    assert "public.t: paused" in paused.stderr
    with pipeline.capturing():
        wait_until(lambda: (found := reread(pipeline, "snapshot:public.t")) and found.state == "paused", 30)
        status = cdc("status")
        assert "public.t, paused" in status.stdout, status.stdout
        assert cdc("snapshot", "t", "--resume").returncode == 0
        joined = cdc("snapshot", "public.t", "--json")
        assert joined.returncode == 0, joined.stderr
        part = cdc("snapshot", "public.t", "--where", "id <= 3", "--json")
        assert orjson.loads(part.stdout)[0]["rows"] == 3
        refused = {
            ("snapshot", "nothing"): (64, "no captured table"),
            ("snapshot", "t", "--where", "id <= 3; select 1"): (78, "no condition"),
            ("snapshot", "t", "--where", "nothing = 1"): (78, "no captured column nothing"),
            ("snapshot", "t", "--keys", "1:2"): (78, "1 columns"),
            ("snapshot", "--where", "true"): (64, "need a table"),
            ("snapshot", "--cancel"): (64, "no table is being read again"),
            ("snapshot", "--pause", "--cancel"): (64, "exclude"),
        }
        for arguments, (code, words) in refused.items():
            done = cdc(*arguments)
            assert (done.returncode, words in done.stderr) == (code, True), f"{arguments}: {done.stderr}"
            assert "hint: " in done.stderr
    same(pipeline)


@pytest.mark.slow
def test_live_windows_take_the_first_snapshots_place(pipeline: Pipeline, run_cdc: RunCdc) -> None:
    pipeline.execute(TABLE, "insert into t select n, 'v' from generate_series(1, 500) n")
    prepare_pipeline(pipeline.settings)
    made = run_cdc("--config", pipeline.config(), "snapshot", "--live")
    assert made.returncode == 0, made.stderr
    with pipeline.capturing():
        pipeline.execute("update t set v = 'w' where id % 3 = 0")
        wait_until(lambda: (found := reread(pipeline, "snapshot:public.t")) and found.state == "done", 40)
        pipeline.settle()
    same(pipeline)
