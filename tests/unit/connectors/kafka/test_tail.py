"""A topic that cannot be read to its end."""

from __future__ import annotations

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import LogError
from connectors.kafka.topic_ends import require_shown


def test_h592_an_older_record_is_not_taken_for_the_newest() -> None:
    clock = ManualClock()
    began_s = clock.monotonic()
    with pytest.raises(LogError, match="readable up to offset 7, and ends at 9: somebody's transaction is open in it"):
        require_shown(lambda: 7, "shop.progress", 9, clock)
    assert clock.monotonic() - began_s < 3


def test_h592_a_leader_that_was_just_chosen_is_waited_for() -> None:
    clock = ManualClock()
    ends = [7, 7, 9]
    require_shown(lambda: ends.pop(0), "shop.progress", 9, clock)
    assert ends == []


def test_h592_a_topic_that_grew_meanwhile_is_read() -> None:
    clock = ManualClock()
    began_s = clock.monotonic()
    require_shown(lambda: 12, "shop.progress", 9, clock)
    assert clock.monotonic() == began_s
