"""Masked columns: every way out of capture has the same masked value, and none has the plain one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import CdcError, Exit
from cdc.record.topic_names import TableName
from cdc.wiring.pipeline import prepare_pipeline
from connectors.operate.verify import open_cut, verified_tables
from connectors.postgres.encoding.encoder import unescape
from connectors.postgres.server.connections import connect
from tests.faults.typed import SETUP, TYPES, rows
from tests.integration.capture.later import ask, over, reread
from tests.integration.capture.masking import KEY, SENTINEL, mac, masked, topics_text
from tests.integration.capture.pipeline import Pipeline, refused
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_MASK_KEY", KEY)


def texts(pipeline: Pipeline, table: str) -> Mapping[int, Mapping[str, str | None]]:
    """Each row's values as Postgres prints them to capture, which a cast to text does not for every type."""
    with (
        connect(pipeline.settings.source, application_name="test", autocommit=True) as session,
        session.cursor() as cur,
    ):
        cur.execute(f"select * from public.{table} limit 0".encode())
        names = [column.name for column in cur.description or ()]
        with cur.copy(f"copy public.{table} to stdout".encode()) as copy:
            lines = [bytes(line).removesuffix(b"\n").split(b"\t") for line in copy]
    found = [[None if (text := unescape(field)) is None else text.decode() for field in line] for line in lines]
    return {int(row[0] or ""): dict(zip(names, row, strict=True)) for row in found}


@pytest.mark.slow
def test_every_type_is_masked_alike_on_every_way(pipeline: Pipeline) -> None:
    """Snapshot, stream, old rows, a later reading and verify, of a column of each type under each mask."""
    names = [one.name for one in TYPES]
    rules = {name: ("hmac", "truncate:5", "drop")[at % 3 if at % 7 else 0] for at, name in enumerate(names)}
    masked(pipeline, "every", **rules)
    with pipeline.session() as session:
        for statement in SETUP:
            session.execute(statement.encode())
        session.execute("alter table every replica identity full")
        with session.cursor().copy("copy every from stdin") as copy:
            for row in rows(random.Random(20), 40):
                copy.write_row(row)
    pipeline.prepare_with_rows()
    with pipeline.capturing():
        pipeline.execute("update every set id = -id", "delete from every where id between -5 and -1")
        pipeline.settle()
        assert over(pipeline, ask(pipeline, "public.every")).state == "done"
    plain = texts(pipeline, "every")
    kept = [name for name in names if rules[name] != "drop"]
    read = [record for record in pipeline.by_position("every") if record.value is not None and record.op != "t"]
    assert {record.op for record in read} == {"r", "c", "d", "u"}
    assert len([record for record in read if record.value["source"]["snapshot"] == "incremental"]) >= len(plain)
    for record in read:
        for row in (record.value["before"], record.value["after"]):
            if row is None:
                continue
            assert list(row) == ["id", *kept]
            source = plain.get(-abs(row["id"]))
            for name in kept if source is not None else ():
                text = source[name]  # type: ignore[index]
                wanted = None if text is None else mac(text) if rules[name] == "hmac" else text[:5]
                assert row[name] == wanted, f"{name} ({record.op}, {record.value['source']['snapshot']})"
    # A column by type of each way: cdc verify reads the rows as it compares them with a store's.
    cut = open_cut(pipeline.settings)
    try:
        table = verified_tables(pipeline.settings, pipeline.topics(), cut)[TableName("public", "every")]
        cut.cut()
        verified = {key: row for keys, values in cut.rows(table) for key, row in zip(keys, values, strict=True)}
        parts = list(cut.records_of(table, list(verified)))
        repaired = {row.key.decode(): orjson.loads(row.after or b"null") for part in parts for row in part.values()}
    finally:
        cut.close()
    compacted = pipeline.compacted("every")
    assert verified.keys() == {str(number) for number in plain}
    assert repaired == compacted


TABLES = (
    "create table t (id int primary key, mail text, doc text, n int)",
    "alter table t alter doc set storage external",
    f"insert into t select n, '{SENTINEL}' || n, repeat('{SENTINEL}', 500) || n, 0 from generate_series(1, 3) n",
)


@pytest.mark.slow
def test_values_that_are_looked_up_are_masked(pipeline: Pipeline) -> None:
    masked(pipeline, "t", mail="hmac", doc="hmac")
    pipeline.prepare_with_rows(*TABLES)
    with pipeline.capturing():
        pipeline.execute("update t set n = n + 1")
        pipeline.settle()
        assert over(pipeline, ask(pipeline, keys=[["2"], ["9"]], id="snapshot:public.t:keys:1")).state == "done"
    rows_ = pipeline.compacted("t")
    assert {row["doc"] for row in rows_.values()} == {mac(SENTINEL * 500 + str(n)) for n in (1, 2, 3)}
    assert {row["mail"] for row in rows_.values()} == {mac(SENTINEL + str(n)) for n in (1, 2, 3)}
    assert [record.value["source"].get("reselected") for record in pipeline.records("t") if record.op == "u"]
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.slow
def test_a_masked_key_is_a_key_as_any(pipeline: Pipeline) -> None:
    masked(pipeline, "t", mail="hmac")
    pipeline.prepare_with_rows(
        "create table t (mail text primary key, doc text)",
        "alter table t replica identity full",
        f"insert into t select '{SENTINEL}' || n, 'x' from generate_series(1, 9) n",
    )
    with pipeline.capturing():
        pipeline.execute(
            "update t set doc = repeat('y', 5000) where mail like '%1'",
            "update t set mail = mail || 'moved' where mail like '%2'",
            "delete from t where mail like '%3'",
            f"insert into t values ('{SENTINEL}10', 'z')",
        )
        pipeline.settle()
        assert over(pipeline, ask(pipeline)).state == "done"
        # Nobody can ask for rows by a key that is masked.
        failed = over(pipeline, ask(pipeline, keys=[[SENTINEL + "4"]], id="snapshot:public.t:keys:1"))
        assert failed.state == "failed" and "masked" in failed.detail
    pipeline.assert_ordered("t")
    with pipeline.session() as session:
        source = {mac(mail): doc for mail, doc in session.execute("select mail, doc from t").fetchall()}
    assert {row["mail"]: row["doc"] for row in pipeline.compacted("t").values()} == source
    state = b"".join(value for key, value in pipeline.state().items() if b"keys:1" not in key)
    assert SENTINEL.encode() not in state


@pytest.mark.slow
def test_changed_masks_read_the_table_again(pipeline: Pipeline) -> None:
    pipeline.prepare_with_rows(*TABLES)
    with pipeline.capturing():
        pipeline.execute("update t set n = 1 where id = 1")
        pipeline.settle()
    assert pipeline.compacted("t")['{"id":1}']["mail"] == f"{SENTINEL}1"
    for rules in ({"mail": "hmac", "doc": "drop"}, {"mail": "truncate:5", "doc": "drop"}):
        masked(pipeline, "t", **rules)
        # As an operator may do before the next cdc run. It registers the new shape, and hides nothing from capture.
        prepare_pipeline(pipeline.settings)
        before = reread(pipeline, "snapshot:public.t")
        # The note and its request are there together, or the next start asks again.
        assert pipeline.start(crash_at="masks_noted").wait(60) == CRASH_EXIT
        with pipeline.capturing():

            def done(before: Any = before) -> bool:
                found = reread(pipeline, "snapshot:public.t")
                return found is not None and found.over and found != before

            wait_until(done, 40, lambda: reread(pipeline, "snapshot:public.t"))
        wanted = [mac(f"{SENTINEL}{n}") if rules["mail"] == "hmac" else SENTINEL[:5] for n in (1, 2, 3)]
        rows_ = pipeline.compacted("t")
        assert sorted(row["mail"] for row in rows_.values()) == sorted(wanted)
        assert all(list(row) == ["id", "mail", "n"] for row in rows_.values())
    with pipeline.capturing():
        pipeline.settle()
    assert len([r for r in pipeline.records("t") if r.op == "r"]) == 9, "it is read again once for each change"


@pytest.mark.slow
def test_a_masked_column_that_is_renamed_stops_its_table_alone(pipeline: Pipeline) -> None:
    masked(pipeline, "t", mail="hmac", doc="drop")
    pipeline.prepare_with_rows(*TABLES, "create table free (id int primary key)")
    with pipeline.capturing() as capturing:
        pipeline.execute("alter table t rename mail to address", f"insert into t values (7, '{SENTINEL}', 'x', 1)")
        pipeline.execute("insert into free values (1)")
        wait_until(lambda: pipeline.count("free") == 1, 30, "the others flow")
        wait_until(lambda: bool(capturing.figures.asides()), 30, "t is set aside")
        (aside,) = capturing.figures.asides().values()
        assert "public.t, which has masks, was made anew, or columns of it were renamed or dropped" in aside.detail
    assert SENTINEL.encode() not in topics_text(pipeline)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"nope": "hmac"}, "no such column"),
        ({"id": "drop"}, "by hmac alone"),
        ({"id": "hmac"}, "looked up by the key"),
    ],
)
def test_masks_that_cannot_be_kept_are_refused_by_init(pipeline: Pipeline, rules: dict[str, str], words: str) -> None:
    masked(pipeline, "t", **rules)
    with pytest.raises(CdcError, match=words):
        pipeline.prepare(*TABLES[:1])


def test_masks_of_a_table_that_is_not_captured_are_refused(pipeline: Pipeline) -> None:
    masked(pipeline, "other", id="hmac")
    with pytest.raises(CdcError, match="is no captured table") as refusal:
        pipeline.prepare(*TABLES[:1])
    assert refusal.value.exit is Exit.CONFIG


@pytest.mark.slow
def test_capture_needs_the_key(pipeline: Pipeline) -> None:
    masked(pipeline, "t", mail="hmac")
    pipeline.prepare_with_rows(*TABLES)
    refused(pipeline.start(CDC_MASK_KEY="short"), 78, "less than 32 bytes")
