"""Masks cover a column whatever it, or its table, is called when the stream brings it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from cdc.operate.snapshot_requests import WantedRows
from cdc.process.errors import CdcError
from cdc.record.topic_names import TableName
from cdc.wiring.pipeline import build_snapshot, open_rereads
from connectors.operate.forget import forget_report
from connectors.operate.verify import masked_otherwise, open_cut, open_side, verified_tables
from connectors.postgres.server.connections import connect
from snapshot.source.ports import NoReport
from snapshot.source.read_transaction import Changed, ReadTarget, open_read
from tests.integration.capture.later import swept
from tests.integration.capture.masking import KEY, PLAIN, ROW, SENTINEL, TABLE, aside, mac, masked, topics_text
from tests.integration.capture.pipeline import Pipeline, refused
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_MASK_KEY", KEY)


@pytest.mark.slow
def test_h283_a_second_epoch_of_a_masked_table_ends(pipeline: Pipeline) -> None:
    masked(pipeline, "t", mail="hmac", note="drop")
    pipeline.prepare_with_rows(TABLE, ROW)
    pipeline.new_epoch()
    pipeline.execute("delete from t", "insert into t values (2, 'later', '')")
    build_snapshot(pipeline.settings, NoReport(), workers=1).run()
    with pipeline.capturing():
        pipeline.execute("insert into t values (3, 'newest', '')")
        pipeline.settle()
    assert swept(pipeline, "t") == {
        f'{{"id":{number}}}': {"id": number, "mail": mac(mail)} for number, mail in ((2, "later"), (3, "newest"))
    }
    assert SENTINEL.encode() not in topics_text(pipeline)


SWAP = (
    "alter table t rename mail to x",
    "alter table t rename note to mail",
    "alter table t rename x to note",
)


def followed_again(capturing: Any) -> None:
    """What was set aside is read anew."""
    wait_until(lambda: not capturing.figures.asides(), 60, capturing.figures.asides)


RENAMED_SINCE: dict[str, tuple[list[str], dict[str, str], dict[str, str | None]]] = {
    "renamed, and the mask with it": (
        ["alter table t rename mail to address"],
        {"address": "hmac"},
        {"address": mac(SENTINEL), "note": PLAIN},
    ),
    "dropped and made again": (
        ["alter table t drop column mail", "alter table t add column mail text"],
        {"mail": "hmac"},
        {"note": PLAIN, "mail": None},
    ),
    "made since": (
        ["alter table t add column late text"],
        {"mail": "hmac", "late": "hmac"},
        {"mail": mac(SENTINEL), "note": PLAIN, "late": None},
    ),
    "swapped names": (
        ["alter table t rename mail to x", "alter table t rename note to mail", "alter table t rename x to note"],
        {"note": "hmac"},
        {"note": mac(SENTINEL), "mail": PLAIN},
    ),
    "one taken over by another": (
        [
            "alter table t drop column note",
            "alter table t rename mail to note",
            "alter table t add column mail text",
        ],
        {"note": "hmac"},
        {"note": mac(SENTINEL), "mail": None},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RENAMED_SINCE)
def test_h284_names_of_a_lagging_stream_leak_nothing(pipeline: Pipeline, case: str) -> None:
    """The settings name columns as they are called now, and the stream brings rows from before."""
    changes, rules, row = RENAMED_SINCE[case]
    pipeline.prepare(TABLE)
    pipeline.execute(ROW, *changes)
    masked(pipeline, "t", **rules)
    with pipeline.capturing() as capturing:
        assert capturing.figures.asides()
        followed_again(capturing)
        pipeline.execute("update t set id = 2")
        pipeline.settle()
    assert swept(pipeline, "t") == {'{"id":2}': {"id": 2, **row}}
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_h284_columns_that_moved_in_between_leak_nothing(pipeline: Pipeline) -> None:
    """The masks are the same before and after. For a while the value stood in a column of another name."""
    masked(pipeline, "t", mail="hmac")
    pipeline.prepare_with_rows(TABLE, ROW)
    with pipeline.capturing():
        pipeline.settle()
    pipeline.execute(*SWAP, f"insert into t values (2, '{SENTINEL}', '{PLAIN}')", *SWAP)
    with pipeline.capturing() as capturing:
        aside(capturing, "was made anew, or columns of it were renamed or dropped")
        followed_again(capturing)
    assert swept(pipeline, "t") == {
        f'{{"id":{number}}}': {"id": number, "mail": mac(SENTINEL), "note": PLAIN} for number in (1, 2)
    }
    pipeline.execute(f"insert into t values (3, '{SENTINEL}', '')", "alter table t drop column note")
    with pipeline.capturing() as capturing:
        aside(capturing, "was made anew, or columns of it were renamed or dropped")
        followed_again(capturing)
    assert [row["mail"] for row in swept(pipeline, "t").values()] == [mac(SENTINEL)] * 3
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_h284_a_column_that_is_added_sets_nothing_aside(pipeline: Pipeline) -> None:
    masked(pipeline, "t", mail="hmac")
    pipeline.prepare_with_rows(TABLE)
    with pipeline.capturing() as capturing:
        pipeline.execute(ROW, "alter table t add column late text", f"insert into t values (2, '{SENTINEL}', '', 'x')")
        pipeline.settle()
        assert not capturing.figures.asides()
    assert [record.op for record in pipeline.records("t")] == ["c", "c"]
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_h284_names_that_were_swapped_behind_a_plan_are_noticed(pipeline: Pipeline) -> None:
    """Both snapshots read by names what was planned, and so does cdc verify, with the masks of the plan."""
    masked(pipeline, "t", mail="hmac")
    pipeline.prepare(TABLE, ROW)
    settings = pipeline.settings
    with closing(open_cut(settings)) as cut, connect(settings.source, application_name="test") as session:
        table = verified_tables(settings, pipeline.topics(), cut)[TableName("public", "t")]
        cut.cut()
        ((_, rows),) = cut.rows(table)
        assert len(rows) == 1
        target = ReadTarget(schema=table.shape, name=table.table, oid=table.shape.oid)
        filenode = pipeline.one("select pg_relation_filenode('t')::int8")
        open_read(session, replace(target, filenode=filenode), lambda one: None)
        session.rollback()
        cut.cut()
        pipeline.execute(*SWAP)
        with pytest.raises(CdcError, match="changed its shape while it was compared"):
            list(cut.rows(table))
        with pytest.raises(Changed, match="has another column mail now"):
            open_read(session, replace(target, filenode=filenode), lambda one: None)


@pytest.mark.parametrize("other_key", [False, True])
@pytest.mark.slow
def test_h288_another_mask_of_an_idle_key_is_taken(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, other_key: bool
) -> None:
    """Nothing stays in a store under the former keys."""
    if other_key:
        masked(pipeline, "t", mail="hmac")
    pipeline.prepare_with_rows(
        "create table t (mail text primary key, n int)",
        f"insert into t select '{SENTINEL}' || n, n from generate_series(1, 20) n",
    )
    with pipeline.capturing():
        pipeline.settle()
    former = swept(pipeline, "t").keys()
    masked(pipeline, "t", mail="hmac")
    if other_key:
        monkeypatch.setenv("OTHER_MASK_KEY", KEY[::-1])
        pipeline.document["source"]["mask_key"] = "env:OTHER_MASK_KEY"
    with pipeline.capturing() as capturing:
        followed_again(capturing)
    alive = swept(pipeline, "t")
    assert len(former) == 20 and not former & alive.keys()
    assert not any(SENTINEL in key for key in alive)
    assert sorted(row["n"] for row in alive.values()) == list(range(1, 21))


@pytest.mark.slow
def test_h346_a_table_comes_back_under_another_mask_of_its_key(pipeline: Pipeline) -> None:
    pipeline.prepare("create table t (id int primary key, n int)")
    with pipeline.capturing() as capturing:
        pipeline.execute("alter table t drop constraint t_pkey", "insert into t values (1, 1)")
        aside(capturing, "has no key any more")
    pipeline.execute("alter table t add primary key (id)")
    masked(pipeline, "t", id="hmac")
    with pipeline.capturing() as capturing:
        wait_until(lambda: not capturing.figures.asides(), 40, capturing.figures.asides)
    assert swept(pipeline, "t").keys() == {f'{{"id":"{mac("1")}"}}'}


@pytest.mark.slow
def test_h291_run_refuses_masks_of_a_table_not_captured(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    masked(pipeline, "typo", mail="hmac")
    refused(pipeline.start(CDC_MASK_KEY=KEY), 78, "is no captured table")


@pytest.mark.slow
def test_h296_h297_masks_that_verify_cannot_compare(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    masked(pipeline, "t", mail="hmac", note="drop")
    pipeline.prepare_with_rows(TABLE, ROW)

    def compared() -> tuple[dict[str, str], Mapping[str, str]]:
        settings = pipeline.settings
        with closing(open_cut(settings)) as cut:
            tables = verified_tables(settings, pipeline.topics(), cut)
        return masked_otherwise(tables), tables[TableName("public", "t")].left_out

    assert compared()[0] == {}
    assert "its mask leaves it out" in compared()[1]["note"], "H297: nobody calls the store equal in it"
    monkeypatch.setenv("OTHER_MASK_KEY", KEY[::-1])
    pipeline.document["source"]["mask_key"] = "env:OTHER_MASK_KEY"
    assert "other masks, or another key, for mail than" in compared()[0]["public.t"]
    with ExitStack() as opened:
        side = open_side(pipeline.settings, pipeline.topics(), opened, [])
        assert side.compared == {} and "other masks" in side.refused["public.t"]
    # The mask is newer than the shape that the log has.
    masked(pipeline, "t", mail="hmac", note="drop", id="hmac")
    rereads = open_rereads(pipeline.settings)
    with pytest.raises(CdcError, match="the key of"):
        rereads.ask(["t"], WantedRows(keys=["1"]))
    pipeline.document["tables"] = {"public.t": {"columns": {"note": "hmac"}}}
    pipeline.document["source"]["mask_key"] = "env:CDC_MASK_KEY"
    for where in (f"mail = '{SENTINEL}'", "note = 'x'"):
        with pytest.raises(CdcError, match=r"mail of|no captured column note"):
            open_rereads(pipeline.settings).ask(["t"], WantedRows(where=where))
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_h335_forget_finds_a_masked_key_by_its_hmac(pipeline: Pipeline) -> None:
    masked(pipeline, "keyed", mail="hmac")
    pipeline.prepare_with_rows(
        "create table keyed (mail text primary key)", f"insert into keyed values ('{SENTINEL}'), ('{SENTINEL}2')"
    )
    with pipeline.capturing():
        pipeline.settle()
    with pytest.raises(CdcError, match="is masked"):
        forget_report(pipeline.settings, "public.keyed", SENTINEL)
    report = forget_report(pipeline.settings, "public.keyed", mac(SENTINEL))
    assert report.answers["log"].shows and SENTINEL not in str(report.document())
    assert not forget_report(pipeline.settings, "public.keyed", mac("somebody else")).answers["log"].shows
