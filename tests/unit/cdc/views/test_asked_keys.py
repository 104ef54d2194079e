"""Documents that somebody asks a view's runner for once more: through kills, states copied back and changes between."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.views.view_ports import REASON_CHARACTERS, AskedKeys, RunnerAnswer, in_lots
from connectors.views.view_recomputing import LOT_BYTES, LOT_KEYS
from tests.examples import examples
from tests.unit.cdc.views.damaged_stores import DamagedStore
from tests.unit.cdc.views.oracles import DOCUMENTS, VIEWS
from tests.unit.cdc.views.view_histories import History, Runner, interfere

_STRANGE = {
    "documents": b'{"id":99}',
    "groups": b'{"name":99}',
    "one row": b"{}",
    "several groups of a row": b'{"n":99}',
}
"""A key that the view may have and never has."""
TOPIC = "t.view.v.1"


@pytest.mark.parametrize("view", VIEWS)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32 - 1))
def test_h380_a_damaged_store_is_mended_by_the_topic(
    view: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sql, oracle = VIEWS[view]
    chance = random.Random(seed)
    history, store = History(chance), DamagedStore()
    runner = Runner(sql, history, tmp_path_factory.mktemp("view"), bulk=chance.choice([3, 1000]))
    for _ in range(6):
        for _ in range(chance.randint(0, 3)):
            history.transaction()
        history.progress()
        runner.kill_chance = 0.2
        for _ in range(chance.randint(0, 4)):
            runner.turn()
            if chance.random() < 0.3:
                interfere(runner, chance)
        runner.until_level()
        store.follow(runner.topic)
        wish = history.ask(TOPIC, store.damage(chance, _STRANGE[view]))
        history.lsn += 8  # The fence of who asks.
        history.progress()
        runner.kill_chance = 0.4
        for _ in range(chance.randint(0, 6)):
            runner.turn()
        claim = runner.until_level()
        store.follow(runner.topic)
        assert store.shown() == oracle(history.at(claim.lsn))
        assert runner.topic.answers[-1].id == wish.id
        assert runner.topic.answers[-1].parked == {}
        history.clock.advance(chance.choice([1, 20, 70]))
        if chance.random() < 0.5:
            history.compact()
    runner.end()


def _asked(tmp_path: Path, sql: str = DOCUMENTS) -> tuple[History, Runner]:
    history = History(random.Random(1))
    runner = Runner(sql, history, tmp_path)
    for number in (1, 2):
        history.write("orders", number, {"id": number, "customer_id": 3})
    history.progress_now()
    runner.until_level()
    return history, runner


def test_h380_a_wish_is_answered_once(tmp_path: Path) -> None:
    history, runner = _asked(tmp_path)
    history.ask(TOPIC, [b'{"id":1}'])
    history.lsn += 8
    history.progress_now()
    runner.until_level()
    before = {partition: len(records) for partition, records in runner.topic.records.items()}
    runner.end()
    history.lsn += 8
    history.progress_now()
    runner.until_level()
    assert {partition: len(records) for partition, records in runner.topic.records.items()} == before
    assert len(runner.topic.answers) == 1
    runner.end()


def test_h380_nothing_is_answered_while_a_key_waits(tmp_path: Path) -> None:
    history, runner = _asked(tmp_path)
    for number in range(3, 8):
        history.write("orders", number, {"id": number, "customer_id": 3})
    history.ask(TOPIC, [orjson.dumps({"id": number}) for number in range(1, 8)])
    history.progress_now()
    told = []
    for _ in range(10):
        runner.turn()
        told.append((len(runner.topic.answers), runner.opened[1].sizes()[0]))
    assert any(waiting for answers, waiting in told if not answers), "two of them go out in a turn"
    assert not any(waiting for answers, waiting in told if answers)
    assert len(runner.topic.answers) == 1
    runner.end()


def test_h380_a_document_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    history, runner = _asked(tmp_path, "select o.id, 12 / o.customer_id as share from orders o")
    history.write("orders", 1, {"id": 1, "customer_id": 0})
    history.ask(TOPIC, [b'{"id":1}', b'{"id":2}'])
    history.progress_now()
    for _ in range(20):
        runner.turn()
    (answer,) = runner.topic.answers
    assert list(answer.parked) == ['{"id":1}']
    assert "division by zero" in answer.parked['{"id":1}']
    runner.end()


def test_h380_another_topics_wish_is_left_alone(tmp_path: Path) -> None:
    history, runner = _asked(tmp_path)
    before = {partition: len(records) for partition, records in runner.topic.records.items()}
    history.ask("t.view.other.1", [b'{"id":1}'])
    history.lsn += 8
    history.progress_now()
    runner.until_level()
    assert {partition: len(records) for partition, records in runner.topic.records.items()} == before
    assert runner.topic.answers == []
    runner.end()


@given(keys=st.lists(st.text(max_size=8)), most=st.integers(1, 5), size=st.integers(1, 20))
def test_lots_hold_every_key_in_order(keys: list[str], most: int, size: int) -> None:
    lots = in_lots(keys, most, size)
    assert [key for lot in lots for key in lot] == keys
    sizes = [sum(len(key.encode()) for key in lot) for lot in lots]
    assert all(len(lot) <= most and (len(lot) == 1 or used <= size) for lot, used in zip(lots, sizes, strict=True))


def test_h380_an_answer_fits_into_a_record_with_every_reason() -> None:
    keys = [orjson.dumps({"id": "\u6f22" * 24, "n": number}).decode() for number in range(3 * LOT_KEYS)]
    for lot in in_lots(keys, LOT_KEYS, LOT_BYTES):
        parked = {key: "\u6f22" * REASON_CHARACTERS for key in lot}
        assert len(RunnerAnswer(id="0" * 16, parked=parked).to_json()) < 1_000_000
        assert len(AskedKeys(topic="t", id="0" * 16, keys=lot).to_json()) < 1_000_000
