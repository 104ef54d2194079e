"""Masks cover a column whatever it, or its table, is called when the stream brings it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from cdc.errors import CdcError
from cdc.rereads.run import WantedRows
from cdc.topic import TableName
from cdc.wiring.pipeline import prepare_pipeline
from cdc.wiring.snapshot import build_snapshot, open_rereads
from connectors.forgetting import forget_report
from connectors.postgres.connections import connect
from connectors.verified import masked_otherwise, open_cut, verified_tables
from connectors.verified_stores import open_side
from snapshot.edges import NoReport
from snapshot.read_transaction import Changed, ReadTarget, open_read
from tests.integration.capture.later import reread, swept
from tests.integration.capture.masking import KEY, SENTINEL, mac, masked, topics_text
from tests.integration.capture.pipeline import Pipeline, refused
from tests.waiting import wait_until

PLAIN = "openvalue"
TABLE = "create table t (id int primary key, mail text, note text)"
ROW = f"insert into t values (1, '{SENTINEL}', '{PLAIN}')"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_MASK_KEY", KEY)


def aside(capturing: Any, words: str) -> None:
    """A table is set aside with these words."""
    wait_until(lambda: bool(capturing.figures.asides()), 30, "it is set aside")
    (found,) = capturing.figures.asides().values()
    assert re.search(words, found.detail), found.detail


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


RENAMED_SINCE: dict[str, tuple[list[str], dict[str, str], bool]] = {
    "renamed, and the mask with it": (
        ["alter table t rename mail to address"],
        {"address": "hmac"},
        True,
    ),
    "dropped and made again": (
        ["alter table t drop column mail", "alter table t add column mail text"],
        {"mail": "hmac"},
        True,
    ),
    "made since": (
        ["alter table t add column late text"],
        {"mail": "hmac", "late": "hmac"},
        True,
    ),
    "swapped names": (
        ["alter table t rename mail to x", "alter table t rename note to mail", "alter table t rename x to note"],
        {"note": "hmac"},
        False,
    ),
    "one taken over by another": (
        [
            "alter table t drop column note",
            "alter table t rename mail to note",
            "alter table t add column mail text",
        ],
        {"note": "hmac"},
        False,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RENAMED_SINCE)
def test_h284_names_of_a_lagging_stream_leak_nothing(pipeline: Pipeline, case: str) -> None:
    """The settings name columns as they are called now, and the stream brings rows from before."""
    changes, rules, followed = RENAMED_SINCE[case]
    pipeline.prepare(TABLE)
    pipeline.execute(ROW, *changes)
    masked(pipeline, "t", **rules)
    with pipeline.capturing() as capturing:
        fence = pipeline.fence()
        wait_until(
            lambda: bool(capturing.figures.asides()) or ((found := pipeline.progress()) and found.lsn > fence),
            30,
            "the stream passes it",
        )
        if followed:
            assert not capturing.figures.asides()
    assert SENTINEL.encode() not in topics_text(pipeline)
    if followed:
        (row,) = (record.value["after"] for record in pipeline.by_position("t") if record.op == "c")
        assert (row["mail"], row["note"]) == (mac(SENTINEL), PLAIN)


SWAP = (
    "alter table t rename mail to x",
    "alter table t rename note to mail",
    "alter table t rename x to note",
)


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


@pytest.mark.slow
def test_h285_a_renamed_table_keeps_its_masks(pipeline: Pipeline) -> None:
    masked(pipeline, "t", mail="hmac")
    pipeline.document["source"]["tables"] = ["public.*"]
    pipeline.prepare_with_rows(TABLE, ROW)
    with pipeline.capturing() as capturing:
        pipeline.execute("alter table t rename to former", f"insert into former values (2, '{SENTINEL}', '')")
        aside(capturing, "renamed to public.former")
    # As an operator may take it for a new table then.
    pipeline.document["tables"] = {}
    with pytest.raises(CdcError, match="was masked under another name"):
        prepare_pipeline(pipeline.settings)
    assert SENTINEL.encode() not in topics_text(pipeline)


TREE = (
    "create table tree (id int, mail text, primary key (id)) partition by range (id)",
    "create table low partition of tree for values from (0) to (100)",
    f"insert into tree values (1, '{SENTINEL}1')",
)


@pytest.mark.slow
def test_h287_a_detached_partition_keeps_the_masks(pipeline: Pipeline) -> None:
    masked(pipeline, "tree", mail="hmac")
    pipeline.document["source"]["tables"] = ["public.*"]
    pipeline.prepare_with_rows(*TREE)
    with pipeline.capturing():
        pipeline.execute(f"insert into tree values (2, '{SENTINEL}2')")
        pipeline.settle()
    pipeline.execute(
        "alter table tree detach partition low",
        f'alter publication "{pipeline.settings.publication}" add table low',
    )
    with pipeline.capturing() as capturing:
        pipeline.execute(f"insert into low values (3, '{SENTINEL}3')")
        aside(capturing, "was a partition of public.tree, which masks mail")
    with pytest.raises(CdcError, match="was a partition of"):
        prepare_pipeline(pipeline.settings)
    assert SENTINEL.encode() not in topics_text(pipeline)
    masked(pipeline, "low", mail="hmac")
    prepare_pipeline(pipeline.settings)


def detached(pipeline: Pipeline) -> None:
    """A pipeline that has captured a table, one partition of which is published by itself now."""
    masked(pipeline, "tree", mail="hmac")
    pipeline.document["source"]["tables"] = ["public.*"]
    pipeline.document.setdefault("snapshot", {})["watch"] = "500ms"
    pipeline.prepare_with_rows(*TREE, "create table other (id int primary key)")
    with pipeline.capturing():
        pipeline.execute(f"insert into tree values (2, '{SENTINEL}2')")
        pipeline.settle()
    pipeline.execute(
        "alter table tree detach partition low",
        f'alter publication "{pipeline.settings.publication}" add table low',
    )


@pytest.mark.slow
def test_h340_no_remedy_follows_a_part_without_masks(pipeline: Pipeline) -> None:
    """Another table is set aside with it, and comes back."""
    detached(pipeline)
    with pipeline.capturing() as capturing:
        pipeline.execute(f"insert into low values (3, '{SENTINEL}3')")
        aside(capturing, "was a partition of public.tree, which masks mail")
        pipeline.execute("alter table other drop constraint other_pkey", "insert into other values (1)")
        wait_until(lambda: len(capturing.figures.asides()) == 2, 30, "another is set aside")
        pipeline.execute("alter table other add primary key (id)", "insert into other values (2)")
        wait_until(lambda: "public.other" not in capturing.figures.asides(), 60, capturing.figures.asides)
        aside(capturing, "was a partition of public.tree, which masks mail")
        assert capturing.figures.asides()["public.low"].state.value == "aside"
        assert reread(pipeline, "snapshot:public.low") is None
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_h341_the_watch_adds_no_idle_part(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    detached(pipeline)
    with pipeline.capturing():
        wait_until(
            lambda: any(
                one.getMessage() == "table_not_captured" and "which masks mail" in vars(one)["why"]
                for one in list(caplog.records)
            ),
            30,
            "the watch says why",
        )
        assert reread(pipeline, "snapshot:public.low") is None
    assert "public.low" not in pipeline.topics().tables
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_h343_a_child_needs_the_masks_of_what_it_inherits(pipeline: Pipeline) -> None:
    """Also one that inherits no more, and one that comes while capture runs."""
    masked(pipeline, "t", mail="hmac")
    pipeline.document["source"]["tables"] = ["public.*"]
    pipeline.document["source"]["exclude"] = ["public.child"]
    pipeline.document.setdefault("snapshot", {})["watch"] = "500ms"
    child = "create table child (primary key (id)) inherits (t)"
    pipeline.prepare_with_rows(TABLE, child, f"insert into child values (1, '{SENTINEL}', '')")
    late = pipeline.settings.publication
    pipeline.document["source"]["exclude"] = []
    with pytest.raises(CdcError, match=r"child inherits from public.t, which masks mail"):
        prepare_pipeline(pipeline.settings)
    pipeline.document["source"]["exclude"] = ["public.child"]
    with pipeline.capturing() as capturing:
        pipeline.execute(
            "create table grandchild (primary key (id)) inherits (child)",
            f'alter publication "{late}" add table grandchild',
            f"insert into grandchild values (2, '{SENTINEL}', '')",
        )
        aside(capturing, "grandchild inherits from public.child, which|inherits from public.t, which masks mail")
    pipeline.execute("alter table grandchild no inherit child", "alter table child no inherit t")
    pipeline.document["source"]["exclude"] = []
    with pytest.raises(CdcError, match=r"was a partition of public.t, which masks mail"):
        prepare_pipeline(pipeline.settings)
    assert SENTINEL.encode() not in topics_text(pipeline)
    masked(pipeline, "child", mail="hmac")


@pytest.mark.parametrize("other_key", [False, True])
@pytest.mark.slow
def test_h288_h289_another_mask_of_an_idle_key_is_taken(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, other_key: bool
) -> None:
    """H289 as well: what stands under the former keys is removed from the topic."""
    if other_key:
        masked(pipeline, "t", mail="hmac")
    pipeline.prepare_with_rows(
        "create table t (mail text primary key, n int)",
        f"insert into t select '{SENTINEL}' || n, n from generate_series(1, 20) n",
    )
    with pipeline.capturing():
        pipeline.settle()
    masked(pipeline, "t", mail="hmac")
    if other_key:
        monkeypatch.setenv("OTHER_MASK_KEY", KEY[::-1])
        pipeline.document["source"]["mask_key"] = "env:OTHER_MASK_KEY"
    with pipeline.capturing():
        wait_until(
            lambda: (found := reread(pipeline, "snapshot:public.t")) is not None and found.state == "done",
            40,
            lambda: reread(pipeline, "snapshot:public.t"),
        )
    last = {record.key: record.value for record in pipeline.records("t") if record.op != "t"}
    alive = {key: value["after"] for key, value in last.items() if value is not None}
    assert len(last) == 40, "the former keys and those of now"
    assert len(alive) == 20
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
