"""Small compacted topics, when no broker answers."""

from __future__ import annotations

import pytest

from cdc.settings import LogSettings
from connectors.kafka.compacted import CompactedTopic


class _GivenUp(Exception):
    pass


def test_h57_a_write_of_a_running_capture_waits_for_the_brokers_until_it_is_told_to_give_up() -> None:
    asked = 0

    def waiting() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise _GivenUp

    # Nobody listens on port 1.
    topic = CompactedTopic(LogSettings(bootstrap_servers="127.0.0.1:1"), "shop.state", waiting=waiting)
    for turns in (2, 3):
        with pytest.raises(_GivenUp):
            topic.write([(b"key", b"value")])
        assert asked == turns
