"""The lines of streams in ``cdc status``, and which of them are faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.process.errors import LogError
from cdc.record.ports import Unknown
from cdc.status.rules import status_of
from cdc.status.stream_lines import StreamFacts
from tests.unit.cdc.status.test_rules import FACTS, LIMITS, page

AT_US = 1_772_366_400_000_000
STREAM = StreamFacts(
    name="traffic", generation=2, topic="shop.stream.traffic.2", batch=41, at_us=AT_US, newest_us=AT_US + 3_200_000,
    set_apart={"ahead": 1, "late": 2_000}, state_rows=12_345, state_partitions=4,
)  # fmt: skip


def test_each_stream_has_its_lines() -> None:
    shown = status_of(replace(FACTS, streams=[STREAM, StreamFacts(name="new", generation=1, topic="t")]), LIMITS)
    assert shown.passed == ()
    assert shown.document()["streams"]["traffic"] == {
        "state": "published",
        "generation": 2,
        "topic": "shop.stream.traffic.2",
        "batch": 41,
        "at": "2026-03-01T12:00:00.000+00:00",
        "lag_seconds": 3.2,
        "late": {"ahead": 1, "late": 2_000},
        "state_rows": 12_345,
        "state_partitions": 4,
    }
    said = "\n".join(page(shown))
    assert "stream traffic  published, generation 2" in said
    assert "batch 41 up to 2026-03-01T12:00:00.000+00:00, 3.2 s behind the log" in said
    assert "state: 12,345 rows in 4 partitions; set apart: 1 ahead, 2,000 late" in said
    assert "stream new  building, generation 1" in said


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (StreamFacts(name="traffic"), "the stream traffic was never published: cdc stream run traffic keeps it"),
        (replace(STREAM, newest_us=AT_US + 61_000_000), "the stream traffic is 61.0 s behind the log; the limit is 60"),
    ],
    ids=["absent", "behind"],
)
def test_a_stream_that_nobody_keeps_is_a_fault(stream: StreamFacts, said: str) -> None:
    (passed,) = status_of(replace(FACTS, streams=[stream]), LIMITS).passed
    assert said in passed


def test_of_another_programs_topic_no_age_is_known() -> None:
    shown = status_of(replace(FACTS, streams=[replace(STREAM, at_us=0)]), LIMITS)
    assert shown.passed == ()
    document = shown.document()["streams"]["traffic"]
    assert (document["at"], document["lag_seconds"]) == (None, None)


def test_without_the_log_nothing_is_said_of_streams() -> None:
    silent = replace(FACTS, log=Unknown(LogError("away")), streams=[StreamFacts(name="traffic", known=False)])
    shown = status_of(silent, LIMITS)
    assert shown.document()["streams"]["traffic"]["state"] == "unknown"
    assert not any("traffic" in one for one in shown.passed)
