"""What a progress record says of partitions that are ahead of it, held against what the source has written."""

from __future__ import annotations

import pytest

from cdc.process.errors import LogError, TopicError
from cdc.record.position import Position
from cdc.record.progress import Progress
from connectors.session.late_records import require_nothing_lost, require_still, without_future

NEAR, FAR = Position(1, 80, 2).text(), Position(1, 1 << 40, 1).text()


def noted() -> Progress:
    return Progress(
        epoch=1, lsn=40, offsets={"a": {0: 3}}, ahead={"a": {0: NEAR, 1: FAR}, "b": {0: FAR}, "c": {0: NEAR}}
    )


def test_h157_positions_of_the_future_are_left_out_and_named() -> None:
    found, skipped = without_future(noted(), 80)
    assert found.ahead == {"a": {0: NEAR}, "c": {0: NEAR}}
    assert skipped == {"a", "b"}
    assert (found.lsn, found.offsets) == (noted().lsn, noted().offsets)


def test_h157_nothing_is_left_out_where_nothing_is_known() -> None:
    assert without_future(noted(), None) == (noted(), frozenset())


def test_an_end_below_what_was_acknowledged_is_refused() -> None:
    require_nothing_lost({"a": {0: 3}}, noted())
    with pytest.raises(TopicError, match="ends at offset 2, and 3 were acknowledged"):
        require_nothing_lost({"a": {0: 2}}, noted())


def test_h76_a_topic_that_grows_at_a_start_ends_it() -> None:
    require_still({"a": {0: 3}, "own": {0: 1}}, {"a": {0: 3}, "own": {0: 2}}, "own")
    with pytest.raises(LogError, match="a grew while capture was starting"):
        require_still({"a": {0: 3}}, {"a": {0: 4}}, "own")
