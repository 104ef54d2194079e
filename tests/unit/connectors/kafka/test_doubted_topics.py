"""A broker that has just started says of topics that it does not have them."""

from __future__ import annotations

import pytest

from cdc.clock import ManualClock
from cdc.errors import LogError
from connectors.kafka.doubted_topics import stays_gone


def names(clock: ManualClock, known_after_s: float) -> list[str]:
    return ["shop.progress", "shop.state"] if clock.monotonic() >= known_after_s else ["shop.state"]


@pytest.mark.parametrize(("known_after_s", "gone"), [(0.0, False), (4.0, False), (60.0, True)])
def test_h579_a_topic_is_gone_that_stays_gone(known_after_s: float, gone: bool) -> None:
    clock = ManualClock()
    known_s = clock.monotonic() + known_after_s
    assert stays_gone(["shop.progress"], lambda: names(clock, known_s), clock) is gone
    assert clock.monotonic() - known_s + known_after_s <= 6.0


def test_h579_one_of_several_is_enough() -> None:
    assert stays_gone(["shop.state", "shop.other"], lambda: ["shop.state"], ManualClock())


def test_h579_brokers_that_do_not_answer_say_nothing() -> None:
    def away() -> list[str]:
        raise LogError("away")

    assert not stays_gone(["shop.progress"], away, ManualClock())
