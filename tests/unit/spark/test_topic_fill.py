"""The fill of a store's topics: how far it is, and when it ended."""

from __future__ import annotations

from spark.figures.sink_metrics import FillStand
from spark.stores.store_figures import TopicFill
from tests.unit.spark.records import TOPIC
from tests.unit.spark.test_store_rest import OTHERS, SHOWN


def test_y14_a_table_that_comes_later_is_filled_too() -> None:
    fill, later = TopicFill(), OTHERS.topic
    fill.begin(SHOWN, {TOPIC: {0: 9}})
    assert fill.stand(SHOWN.offsets, [TOPIC]) is None
    fill.begin(SHOWN, {TOPIC: {0: 9}, later: {0: 4, 1: 0}})
    fill.begin(SHOWN, {TOPIC: {0: 9}, later: {0: 6, 1: 0}})
    reached = {**SHOWN.offsets, later: {0: 1}}
    assert fill.stand(reached, [TOPIC, later]) == FillStand(1, 4), "it keeps its goal when its query begins again"
    assert fill.stand(reached, [TOPIC]) is None, "one that is held is not filled"
    assert (fill.filled_ms(reached, [TOPIC, later], 50), fill.filled_ms({later: {0: 4}}, [later], 60)) == (50, 60)
    assert (fill.stand(reached, [later]), fill.filled_ms(reached, [later], 70)) == (None, 60)
