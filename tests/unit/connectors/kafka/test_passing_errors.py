"""A broker's word that a topic is not there: one that starts may know none yet."""

from __future__ import annotations

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import LogError
from connectors.kafka.broker_answers import missing_of

OTHERS = ["shop.state", "shop.public.orders"]


@pytest.mark.parametrize(
    ("knows_after_s", "missing"),
    [(0.0, set()), (1.5, set()), (60.0, {"shop.views", "shop.state"})],
)
def test_y7_a_broker_that_names_no_topic_is_doubted(knows_after_s: float, missing: set[str]) -> None:
    clock = ManualClock()
    begun_s = clock.monotonic()

    def names() -> list[str]:
        return [*OTHERS, "shop.views"] if clock.monotonic() >= begun_s + knows_after_s else []

    assert missing_of({"shop.views", "shop.state"}, names, clock) == missing
    assert clock.monotonic() - begun_s < 3


def test_y7_a_broker_that_names_others_is_believed_at_once() -> None:
    clock = ManualClock()
    begun_s = clock.monotonic()
    assert missing_of({"shop.views", "shop.state"}, lambda: OTHERS, clock) == {"shop.views"}
    assert clock.monotonic() == begun_s


def test_y7_without_an_answer_no_topic_is_missing() -> None:
    def away() -> list[str]:
        raise LogError("away")

    assert not missing_of({"shop.views"}, away, ManualClock())
