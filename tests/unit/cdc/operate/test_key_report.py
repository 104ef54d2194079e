"""What a topic shows of a key, and what the report says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cdc.operate.forget import ForgetReport, KeyAnswer, KeyRecord, in_topic, kept_in
from cdc.process.errors import DifferenceFound, SinkError
from cdc.record.schema import Mask
from sinks.contract.kinds import kinds_of_ours
from tests.unit.connectors.postgres import written as w

SHAPE = w.table(w.column("id", "int4", 0), w.column("name", "text"), name="t")
KEY = b'{"id":42}'
ROW = b'{"before":null,"after":{"id":42}}'


def record(value: bytes | None, op: str = "c", key: bytes = KEY, version: int = 1, at_s: int = 60) -> KeyRecord:
    return KeyRecord(at_s * 1000, key, value, {"op": op.encode(), "ver": str(version).encode()})


DELETE, TOMBSTONE = record(b'{"before":{"id":42},"after":null}', "d", at_s=120), record(None, "d", at_s=120)


@pytest.mark.parametrize(
    ("records", "says", "shows"),
    [
        ([], "no record of the key", False),
        ([record(ROW, key=b'{"id":43}')], "no record of the key", False),
        ([TOMBSTONE], "the tombstone of 1970-01-01 00:02:00Z alone: compacted", False),
        ([record(ROW), DELETE, TOMBSTONE], "2 records before the tombstone of 1970-01-01 00:02:00Z: not", True),
        ([DELETE, TOMBSTONE], "1 record before the tombstone", True),
        ([record(ROW), DELETE], "2 records, the newest a delete without its tombstone", True),
        ([record(ROW)], "1 record, the newest a row of 1970-01-01 00:01:00Z", True),
        ([DELETE, TOMBSTONE, record(ROW)], "2 records, the newest a row", True),
        ([record(b"{}", "t", b'{"%truncate":0}'), TOMBSTONE], "the tombstone of 1970-01-01 00:02:00Z alone", False),
    ],
)
def test_a_topic_shows_rows_until_it_is_compacted(records: list[KeyRecord], says: str, shows: bool) -> None:
    answer = in_topic(records, [SHAPE], "42")
    assert answer.says.startswith(says)
    assert answer.shows is shows
    assert "another form" not in answer.says


def test_records_of_another_key_are_counted() -> None:
    """Of other columns, of other masks, of a shape that the log does not know."""
    mask = Mask(rule="hmac:1", type="int4", type_oid=23, kind="int4")
    key, name = SHAPE.columns
    shapes = [
        replace(SHAPE, columns=(key, replace(name, key_position=1))),
        replace(SHAPE, version=2, columns=(replace(key, mask=mask, type="text", kind="text"), name)),
        replace(SHAPE, version=3),
    ]
    records = [
        record(ROW, key=b'{"id":42,"name":"x"}'),
        record(ROW, key=b'{"id":"42"}', version=2),
        record(ROW, version=9),
        record(ROW, key=b"{}", version=3),
        replaced(record(None, version=3)),
    ]
    answer = in_topic(records, shapes, "42")
    assert answer.says.endswith("alone: compacted. 4 records have a key of another form and were not compared")
    assert not answer.shows


def replaced(one: KeyRecord) -> KeyRecord:
    """As compaction leaves it: a tombstone."""
    return one._replace(value=None)


def report(**answers: KeyAnswer) -> ForgetReport:
    return ForgetReport(table="public.t", key="42", answers=answers, kept={})


def test_the_exit_says_whether_anything_shows_the_row() -> None:
    gone, shown = KeyAnswer("nothing under the key"), KeyAnswer("the row", shows=True)
    away = KeyAnswer("not known: away", failed=SinkError("away", hint="wait"))
    report(log=gone, cache=gone).conclude()
    with pytest.raises(DifferenceFound, match="1 of 3 places show values of that row: cache"):
        report(log=gone, cache=shown, search=away).conclude()
    with pytest.raises(SinkError, match="away"):
        report(log=gone, cache=away).conclude()


def test_each_place_says_what_it_keeps_and_for_how_long() -> None:
    kinds = {kind.name: kind.kept for kind in kinds_of_ours()}
    sinks = {name: (text, {"snapshots_for": timedelta(hours=3)}) for name, text in kinds.items()}
    kept = kept_in(sinks, replay_window=timedelta(days=7), min_compaction_lag=timedelta(hours=1))
    assert "1h after the delete" in kept["log"] and "tombstone 7d more" in kept["log"]
    assert "for 3h (snapshots_for)" in kept["iceberg"]
    assert all("for 7d" in kept[name] for name in kinds)
    assert "VACUUM" in kept["delta"] and "read_through" in kept["redis"] and "segments" in kept["opensearch"]
    assert {"dead letters", "requests", "views", "generations", "Spark", "outside"} <= set(kept)
