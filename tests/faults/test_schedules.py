"""A sample of the schedules: kills, broken connections and late answers leave a log without a gap or a double."""

from __future__ import annotations

import random

from tests.examples import examples
from tests.faults.experiments.schedules import HISTORIES, ORDERS, trial
from tests.faults.pipeline import expected_of
from tests.faults.source import make

SEEDS = examples(8)


def test_h1_h7_h70_h75_h79_the_log_is_exact_after_every_schedule() -> None:
    counted = [trial(seed) for seed in range(SEEDS)]
    assert sum(figures["schedules"] for figures in counted) == SEEDS * HISTORIES * ORDERS
    assert all(figures["kills"] > HISTORIES for figures in counted)


def test_histories_hold_what_they_are_to_try() -> None:
    ops = set()
    versions = set()
    for seed in range(100):
        source = make(random.Random(seed))
        versions |= {sent.columns for transaction in source.transactions for sent in transaction.sent if sent.oid}
        for records in expected_of(source).values():
            ops |= {op for *_, op, _ in records}
            texts = [pos for _, pos, *_ in records]
            assert texts == sorted(texts)
    assert ops == {"c", "u", "d", "t"}
    assert versions == {3, 4}
