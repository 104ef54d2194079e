"""Histories: each change of a table once more in a topic that forgets nothing, whatever is killed between the two."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from cdc.cli.app import run
from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import CdcError, Exit
from cdc.record.position import SNAPSHOT_SEQ, Position
from cdc.record.tables_aside import TableState, asides_of
from cdc.wiring.pipeline import build_snapshot
from connectors.kafka.admin import TopicAdmin
from snapshot.source.ports import NoReport
from tests.integration.capture.pipeline import Pipeline, Record, refused
from tests.integration.capture.test_restart import CRASH_POINTS

TABLE = "create table t (id int primary key, n int not null)"
STEPS = (
    b"insert into t values (%s, 0) on conflict (id) do update set n = t.n + 1",
    b"update t set n = n + 1 where id = %s",
    b"delete from t where id = %s",
)
WIDE = "create table w (id int primary key, v text)"


@pytest.fixture
def kept(pipeline: Pipeline) -> Pipeline:
    pipeline.document["history"] = {"tables": ["public.t"]}
    return pipeline


def changes(pipeline: Pipeline, topic: str) -> list[tuple[Position, str, str]]:
    """Position, operation and key of each record with a value, in the order of the stream. A TRUNCATE once."""
    found = {(one.pos, one.op, one.key) for one in pipeline.records(topic) if one.value is not None}
    return sorted(found)


def assert_whole(pipeline: Pipeline, table: str = "t") -> None:
    """The history has what the table's topic has, each partition in its order and once, and the mark that ends the
    first snapshot."""
    found = changes(pipeline, table)
    assert [
        one
        for one in changes(pipeline, f"public.{table}.history")
        if one in found or one[1] != "t" or one[0].tx_seq != SNAPSHOT_SEQ
    ] == found
    last: dict[int, Position] = defaultdict(lambda: Position(0, 0, 0))
    for one in pipeline.records(f"public.{table}.history"):
        if one.pos.streamed:
            assert one.pos > last[one.partition]
            last[one.partition] = one.pos


def gaps(pipeline: Pipeline, table: str = "t") -> list[Record]:
    return [one for one in pipeline.records(f"public.{table}.history") if one.op == "gap"]


def test_each_change_is_kept_beside_the_table(kept: Pipeline) -> None:
    kept.prepare_with_rows(TABLE, "insert into t select g, 0 from generate_series(1, 20) g")
    with kept.capturing():
        kept.execute("update t set n = n + 1", "update t set n = n + 1 where id < 3", "delete from t where id = 1")
        kept.execute("insert into t values (1, 7)", "truncate t", "insert into t values (2, 8)")
        kept.settle()
    assert_whole(kept)
    found = [one.op for one in kept.records("public.t.history")]
    assert (found.count("r"), found.count("u"), found.count("d"), found.count("c")) == (20, 22, 1, 2)
    assert all(one.value is not None for one in kept.records("public.t.history"))
    topic = f"{kept.name}.public.t.history"
    facts = TopicAdmin(kept.settings.log).describe([topic])[topic]
    assert facts.config["cleanup.policy"] == "delete"
    assert not gaps(kept)


def test_the_history_of_an_empty_table_says_that_it_was(kept: Pipeline) -> None:
    kept.document["history"]["tables"] = ["public.*"]
    kept.prepare_with_rows(TABLE, WIDE, "alter table w replica identity full", "insert into w values (1, 'a')")
    for table in ("t", "w"):
        marks = [one for one in kept.records(f"public.{table}.history") if one.op == "t"]
        assert sorted(one.partition for one in marks) == [0, 1, 2]
        [pos] = {one.pos for one in marks}
        assert (pos.epoch, pos.tx_seq) == (1, SNAPSHOT_SEQ)
        assert {one.value["sweep"]["floor"] for one in marks} == {pos.text()}
    assert not kept.records("t")


def test_a_table_without_a_history_has_none(kept: Pipeline) -> None:
    kept.prepare(TABLE, WIDE)
    with kept.capturing():
        kept.execute("insert into t values (1, 1)", "insert into w values (1, 'a')")
        kept.settle()
    assert kept.topics().histories == {f"{kept.name}.public.t": f"{kept.name}.public.t.history"}
    assert_whole(kept)


def test_a_history_that_begins_later_says_what_it_lacks(kept: Pipeline) -> None:
    kept.document["history"]["tables"] = []
    kept.prepare(TABLE)
    with kept.capturing():
        kept.execute("insert into t values (1, 1)")
        before = kept.settle()
    kept.document["history"] = {"tables": ["public.*"], "keep": "forever"}
    with kept.capturing():
        kept.execute("insert into t values (2, 2)")
        kept.settle()
    found = kept.records("public.t.history")
    assert [one.op for one in found if one.op != "gap"] == ["c"]
    assert [(one.partition, one.pos.commit_lsn >= before) for one in gaps(kept)] == [(0, True), (1, True), (2, True)]
    assert {one.value["gap"]["why"] for one in gaps(kept)} == {"the changes before this were not kept"}
    kept.document["history"]["tables"] = []
    with kept.capturing():
        kept.execute("insert into t values (3, 3)")
        kept.settle()
    kept.document["history"]["tables"] = ["public.t"]
    with kept.capturing():
        kept.execute("insert into t values (4, 4)")
        kept.settle()
    assert [one.value["after"]["id"] for one in kept.by_position("public.t.history") if one.op == "c"] == [2, 4]
    assert len(gaps(kept)) == 6


def test_a_later_table_has_its_history_from_its_first_row(kept: Pipeline) -> None:
    kept.document["history"]["tables"] = ["public.*"]
    kept.document["snapshot"] = {"watch": "200ms"}
    kept.prepare(TABLE)
    with kept.capturing():
        kept.execute("create table late (id int primary key, n int)", "insert into late values (1, 1)")
        kept.execute(f"alter publication {kept.settings.publication} add table late", "insert into late values (2, 1)")
        kept.settle()
        kept.execute("update late set n = 2")
        kept.settle()
    assert_whole(kept, "late")


def test_a_record_that_is_too_large_is_a_gap_of_its_key(kept: Pipeline) -> None:
    kept.document["history"] = {"tables": ["public.w"]}
    kept.document["log"]["max_message_bytes"] = 20_000
    kept.prepare(WIDE, "alter table w replica identity full")
    with kept.capturing():
        kept.execute("insert into w values (1, 'a')", "insert into w values (2, repeat('x', 30000))")
        kept.execute("insert into w values (3, 'c')")
        kept.settle()
    assert [(one.key, one.op) for one in kept.by_position("public.w.history")] == [
        ('{"id":1}', "c"), ('{"id":2}', "gap"), ('{"id":3}', "c"),
    ]  # fmt: skip
    assert gaps(kept, "w")[0].value["gap"]["bytes"] > 30_000


def test_a_history_needs_whole_rows(kept: Pipeline) -> None:
    kept.document["history"] = {"tables": ["public.w"]}
    with pytest.raises(CdcError, match="an update may leave out long values of v") as refusal:
        kept.prepare(WIDE)
    assert "replica identity full" in (refusal.value.hint or "")
    kept.prepare("alter table w replica identity full")
    running = kept.stream()
    kept.execute("alter table w replica identity default", "insert into w values (1, 'a')")
    refused(running, Exit.CONFIG, "an update may leave out long values of v", "replica identity full")


def test_a_history_is_printed(kept: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    def events(*arguments: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        code = run(["--config", str(kept.config()), "events", *arguments, "--from-beginning", "--until-caught-up"])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, (out + err).splitlines()

    kept.document["history"]["tables"] = []
    kept.prepare(TABLE, WIDE)
    kept.document["history"]["tables"] = ["public.none*"]
    run(["--config", str(kept.config()), "check"])
    assert '"public.none*" takes no captured table' in " ".join(capsys.readouterr().out.split())
    kept.document["history"]["tables"] = []
    assert events("t", "--history")[1][0] == "error: no history of public.t is kept"
    kept.document["history"]["tables"] = ["public.t"]
    with kept.capturing():
        kept.execute("insert into t values (1, 1)", "update t set n = 2", "delete from t")
        kept.settle()
    code, lines = events("t", "--history")
    assert code == 0
    assert [line.split("  ")[1] for line in lines] == ["gap", "gap", "gap", "insert", "update", "delete"]
    assert events("w", "--history")[0] == Exit.USAGE
    capsys.readouterr()
    assert run(["--config", str(kept.config()), "forget", "public.t", "1"]) == Exit.DIFFERENCE
    said = capsys.readouterr().out
    assert "history: 3 records, the newest a delete without its tombstone" in said
    assert "every version of the row, for 90d ([history] keep)" in said


@pytest.mark.slow
def test_e1_killed_anywhere_both_have_each_change_once(kept: Pipeline) -> None:
    kept.prepare_with_rows(TABLE, "insert into t select g, 0 from generate_series(1, 50) g")
    chance = random.Random(7)
    with kept.session() as session:
        for nth, point in enumerate(("group_half_sent", *CRASH_POINTS) * 2):
            running = kept.start(crash_at=f"{point}:{nth % 5 + 1}")
            while running.process.poll() is None:
                step(session, chance)
                with suppress(subprocess.TimeoutExpired):
                    running.process.wait(0.005)
            assert running.process.returncode == CRASH_EXIT, running.stderr
        step(session, chance)
    with kept.capturing():
        kept.settle()
    kept.assert_equal("t")
    assert_whole(kept)


@pytest.mark.slow
def test_e2_a_history_that_is_killed_as_it_begins_has_its_gaps(kept: Pipeline) -> None:
    kept.document["history"]["tables"] = []
    kept.prepare(TABLE)
    with kept.capturing():
        kept.execute("insert into t values (1, 1)")
        kept.settle()
    kept.document["history"]["tables"] = ["public.t"]
    running = kept.start(crash_at="history_begun:1")
    assert running.wait() == CRASH_EXIT
    with kept.capturing():
        kept.execute("insert into t values (2, 2)")
        kept.settle()
    assert {one.partition for one in gaps(kept)} == {0, 1, 2}
    assert [one.value["after"]["id"] for one in kept.records("public.t.history") if one.op == "c"] == [2]


@pytest.mark.slow
def test_a_new_table_that_can_have_no_history_is_set_aside_alone(kept: Pipeline) -> None:
    kept.document["history"]["tables"] = ["public.*"]
    kept.prepare(TABLE)
    running = kept.stream()
    kept.execute(WIDE)
    kept.execute(f"alter publication {kept.settings.publication} add table w", "insert into w values (1, 'a')")
    kept.execute("insert into t values (1, 1)")
    kept.settle()
    assert running.process.poll() is None
    assert_whole(kept)
    assert asides_of(kept.state())["public.w"].state is TableState.ASIDE


@pytest.mark.slow
@pytest.mark.parametrize("point", ["", "first_progress_written:1", "tails_read:1", "history_begun:1"])
def test_e2_a_new_epoch_leaves_a_gap_in_every_partition(kept: Pipeline, point: str) -> None:
    kept.prepare(TABLE)
    with kept.capturing():
        kept.execute("insert into t values (1, 1)")
        kept.settle()
    kept.execute(f"select pg_drop_replication_slot('{kept.slot}')", "update t set n = 2")
    kept.new_epoch()
    build_snapshot(kept.settings, NoReport(), workers=1).run()
    if point:
        assert kept.start(crash_at=point).wait() == CRASH_EXIT
    with kept.capturing():
        kept.execute("update t set n = 3")
        kept.settle()
    assert {(one.partition, one.pos.epoch) for one in gaps(kept)} == {(0, 2), (1, 2), (2, 2)}
    rows = [one for one in kept.by_position("public.t.history") if one.key == '{"id":1}']
    assert [one.value["after"]["n"] for one in rows] == [1, 2, 3]


def step(session: psycopg.Connection[Any], chance: random.Random) -> None:
    """A transaction of a few changes."""
    with session.transaction():
        for _ in range(chance.randint(1, 5)):
            number = chance.randint(1, 60)
            session.execute(chance.choice(STEPS), [number])
