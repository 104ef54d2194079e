"""A relation that is or was a part of a table with masks, or that table under another name, is not captured plain."""

from __future__ import annotations

import pytest

from cdc.process.errors import CdcError
from cdc.wiring.pipeline import prepare_pipeline
from tests.integration.capture.later import reread
from tests.integration.capture.masking import KEY, ROW, SENTINEL, TABLE, aside, masked, topics_text
from tests.integration.capture.pipeline import Pipeline
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_MASK_KEY", KEY)


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
    with pytest.raises(CdcError, match=r"former lacks masks .*: mail of public\.t"):
        prepare_pipeline(pipeline.settings)
    assert SENTINEL.encode() not in topics_text(pipeline)


LACKS_MAIL = "low lacks masks that it has as a part of another table, or had under another name: mail of public.tree"
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
        aside(capturing, LACKS_MAIL)
    with pytest.raises(CdcError, match="low lacks masks"):
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


def started(pipeline: Pipeline) -> bool:
    """Whether a reading of the part has begun."""
    found = reread(pipeline, "snapshot:public.low")
    return found is not None and bool(found.floor)


@pytest.mark.slow
def test_h340_no_remedy_follows_a_part_without_masks(pipeline: Pipeline) -> None:
    """Another table is set aside with it, and comes back."""
    detached(pipeline)
    with pipeline.capturing() as capturing:
        pipeline.execute(f"insert into low values (3, '{SENTINEL}3')")
        aside(capturing, LACKS_MAIL)
        pipeline.execute("alter table other drop constraint other_pkey", "insert into other values (1)")
        wait_until(lambda: len(capturing.figures.asides()) == 2, 30, "another is set aside")
        pipeline.execute("alter table other add primary key (id)", "insert into other values (2)")
        wait_until(lambda: "public.other" not in capturing.figures.asides(), 60, capturing.figures.asides)
        aside(capturing, LACKS_MAIL)
        assert capturing.figures.asides()["public.low"].state.value == "aside"
        assert not started(pipeline)
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_h341_an_idle_part_is_not_read(pipeline: Pipeline) -> None:
    detached(pipeline)
    with pipeline.capturing():
        wait_until(
            lambda: (found := reread(pipeline, "snapshot:public.low")) is not None and LACKS_MAIL in found.detail,
            30,
            "the request says why it waits",
        )
        assert not started(pipeline)
    assert pipeline.records("low") == []
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
    with pytest.raises(CdcError, match=r"child lacks masks .*: mail of public\.t"):
        prepare_pipeline(pipeline.settings)
    pipeline.document["source"]["exclude"] = ["public.child"]
    with pipeline.capturing() as capturing:
        pipeline.execute(
            "create table grandchild (primary key (id)) inherits (child)",
            f'alter publication "{late}" add table grandchild',
            f"insert into grandchild values (2, '{SENTINEL}', '')",
        )
        aside(capturing, r"grandchild lacks masks .*: mail of public\.t")
    pipeline.execute("alter table grandchild no inherit child", "alter table child no inherit t")
    pipeline.document["source"]["exclude"] = []
    with pytest.raises(CdcError, match=r"child lacks masks .*: mail of public\.t"):
        prepare_pipeline(pipeline.settings)
    assert SENTINEL.encode() not in topics_text(pipeline)
    masked(pipeline, "child", mail="hmac")


@pytest.mark.slow
@pytest.mark.parametrize("case", ["tree", "low"])
def test_h287_what_is_attached_needs_the_same_masks(pipeline: Pipeline, case: str) -> None:
    """Two tables are captured, one of them with a mask, and one becomes a partition of the other."""
    masked(pipeline, "low" if case == "tree" else "tree", mail="hmac")
    pipeline.prepare_with_rows(TREE[0], "create table low (like tree including all)")
    with pipeline.capturing() as capturing:
        pipeline.execute(
            "alter table tree attach partition low for values from (0) to (100)",
            f"insert into tree values (1, '{SENTINEL}')",
        )
        if case == "tree":
            aside(capturing, r"tree lacks masks .*: mail of public\.low")
        else:
            pipeline.settle()
    assert SENTINEL.encode() not in topics_text(pipeline)
