"""A topic that the last progress record names, and that another shard of capture writes by now."""

from __future__ import annotations

from cdc.position import Position
from cdc.progress import Progress
from connectors.kafka.tail import held_positions

AHEAD = Position(1, 16, 1)


def test_h402_what_stands_ahead_in_a_topic_given_up_is_left_out() -> None:
    text = AHEAD.text()
    progress = Progress(
        epoch=1, lsn=8, offsets={"kept": {0: 3}, "gone": {0: 5}}, ahead={"kept": {0: text}, "gone": {0: text}}
    )
    found = held_positions(progress, ["kept"], {"kept": {0: 3}}, lambda tails: {})
    assert found == {("kept", 0): AHEAD}
