"""What a capture session finds in the topics before it writes a thing."""

from __future__ import annotations

import pytest

from cdc.errors import Exit, LogError, Retry, TopicError
from cdc.progress import Progress
from connectors.session.mending import require_nothing_lost, require_still

PROGRESS = Progress(epoch=1, lsn=800, offsets={"shop.public.a": {0: 5, 1: 9}})


def test_h62_a_partition_ending_below_the_acknowledged_stops() -> None:
    with pytest.raises(TopicError) as refused:
        require_nothing_lost({"shop.public.a": {0: 5, 1: 8}}, PROGRESS)
    assert "partition 1 ends at offset 8, and 9 were acknowledged" in refused.value.message
    assert refused.value.exit is Exit.TOPIC


def test_a_topic_that_went_on_or_is_captured_no_more_is_fine() -> None:
    require_nothing_lost({"shop.public.a": {0: 5, 1: 12}, "shop.public.b": {0: 0}}, PROGRESS)
    require_nothing_lost({"shop.public.b": {0: 0}}, PROGRESS)


def test_h75_h76_a_topic_that_grows_at_the_start_is_read_again() -> None:
    ends = {"shop.public.a": {0: 5}, "shop.progress": {0: 3}}
    require_still(ends, {"shop.public.a": {0: 5}, "shop.progress": {0: 4}}, "shop.progress")
    with pytest.raises(LogError) as refused:
        require_still(ends, {"shop.public.a": {0: 6}, "shop.progress": {0: 3}}, "shop.progress")
    assert refused.value.retry is Retry.LATER
