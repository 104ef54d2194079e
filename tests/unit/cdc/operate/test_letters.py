"""Orders about dead letters on doubles of their ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from cdc.operate.dead_letter_orders import LetterPorts, LettersRun, left_out
from cdc.process.clock import ManualClock
from cdc.process.errors import TopicError
from cdc.record.schema import TableSchema
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Orders, Waiting, Why, carry_out, queues, waiting
from tests.killing import Killed, Steps, every_kill
from tests.memory_log import MemoryDeadLetters
from tests.unit.connectors.postgres import written as w

SHAPE = w.table(w.column("id", "int4", 0), name="t")


def letter(key: str, sink: str = "cache", offset: int = 0, why: Why = Why.REFUSED) -> DeadLetter:
    return DeadLetter(
        sink=sink, why=why, topic=SHAPE.topic, partition=0, offset=offset, reason="no", key=key.encode(), value=b"{}"
    )


@dataclass(frozen=True)
class Row:
    pos: str
    row: bytes | None


@dataclass(frozen=True)
class Reader:
    rows: Mapping[str, Row]

    def get(self, schema: TableSchema, key: str) -> Row | None:
        return self.rows.get(key)


class Feeding:
    """The application that feeds the cache: it carries out what it hears, and a letter of offset 9 is refused again."""

    def __init__(self) -> None:
        self.topic: list[DeadLetter] = []

    def __call__(self, written: list[DeadLetter]) -> Iterable[DeadLetter]:
        self.topic += written
        orders = Orders("cache", self.topic).open()
        answers = carry_out(
            queues(orders, Waiting(self.topic)),
            lambda tried: {(one.topic, one.partition, one.offset): "still" for one in tried if one.offset == 9},
        )
        self.topic += answers
        return answers


def opened(
    topic: MemoryDeadLetters, clock: ManualClock, rows: Mapping[str, Row] | None = None, steps: Steps | None = None
) -> LettersRun:
    over = (steps or Steps()).over

    @contextmanager
    def store(sink: str) -> Iterator[Reader]:
        yield Reader(rows or {})

    ports = LetterPorts(
        letters=over("letters", topic),
        follow=lambda: over("feed", topic.follow()),
        shapes=lambda: [SHAPE],
        open_store=store,
    )
    return LettersRun(ports, clock)


def fed(*letters: DeadLetter) -> tuple[MemoryDeadLetters, LettersRun, ManualClock]:
    feeding, clock = Feeding(), ManualClock()
    feeding.topic += letters
    topic = MemoryDeadLetters(letters, answering=feeding, clock=clock)
    return topic, opened(topic, clock), clock


def test_each_order_is_answered_by_who_feeds_the_store() -> None:
    good, bad = letter('{"id":1}'), letter('{"id":2}', offset=9)
    topic, orders, _ = fed(good, bad)
    answered = {one.key: answer for one, answer in orders.order([good, bad], Why.RETRY, timeout_s=5)}
    assert [answer.why for answer in answered.values() if answer] == [Why.RELEASED, Why.HELD]
    assert waiting(topic.read()) == [bad]


def test_an_order_that_nobody_hears_times_out_and_stays() -> None:
    clock, one = ManualClock(), letter('{"id":1}')
    topic = MemoryDeadLetters([one], clock=clock)
    began = clock.monotonic()
    assert list(opened(topic, clock).order([one], Why.DROP, timeout_s=3)) == [(one, None)]
    assert 3 <= clock.monotonic() - began < 4
    assert [order.why for order in Orders("cache", topic.read()).open()] == [Why.DROP]


def test_what_capture_put_aside_is_answered_here() -> None:
    one = letter('{"id":1}', CAPTURE, why=Why.OVERSIZED)
    topic = MemoryDeadLetters([one])
    ((_, answer),) = opened(topic, ManualClock()).order([one], Why.DROP, timeout_s=0)
    assert answer is not None
    assert answer.why is Why.RELEASED
    assert waiting(topic.read()) == []


def test_an_order_killed_at_any_step_is_given_again() -> None:
    one, aside = letter('{"id":1}'), letter('{"id":2}', CAPTURE, why=Why.OVERSIZED)

    def ordered(topic: MemoryDeadLetters, clock: ManualClock, steps: Steps) -> list[object]:
        return list(opened(topic, clock, steps=steps).order([one, aside], Why.DROP, timeout_s=5))

    def run(steps: Steps) -> list[object]:
        topic, _, clock = fed(one, aside)
        return ordered(topic, clock, steps)

    count = 0
    for steps in every_kill(run):
        topic, _, clock = fed(one, aside)
        with pytest.raises(Killed):
            ordered(topic, clock, steps)
        ordered(topic, clock, Steps())
        assert waiting(topic.read()) == []
        count += 1
    assert count >= 8


def test_what_the_stores_show_of_a_key_is_said() -> None:
    rows = {"1": Row("1:2:3", b"{}"), "2": Row("1:2:4", None)}
    letters = [letter(f'{{"id":{number}}}', offset=number) for number in (1, 2, 3)]
    unread = [letter("no JSON"), letter('{"id":1}', CAPTURE), replace(letter('{"id":1}'), topic="other")]
    said = list(opened(MemoryDeadLetters(), ManualClock(), rows).shown([*letters, *unread]))
    assert said == [
        f"cache shows row 1 of {SHAPE.table} as of 1:2:3 until its next change",
        f"cache shows no row 2 of {SHAPE.table} until its next change",
        f"cache shows no row 3 of {SHAPE.table} until its next change",
    ]


def test_only_rows_that_capture_left_out_and_that_wait_are_named() -> None:
    out, refused = letter("{}", CAPTURE, 4, Why.OVERSIZED), letter("{}")
    assert list(left_out([refused, out])) == [f"capture left out {SHAPE.topic} {{}}: no"]
    assert list(left_out([out, replace(out, why=Why.RELEASED)])) == []


def test_before_the_pipeline_has_begun_nothing_was_left_out() -> None:
    class Missing(MemoryDeadLetters):
        def read(self) -> list[DeadLetter]:
            raise TopicError("there is no topic shop.dead")

    assert opened(Missing(), ManualClock()).left_out() == []
    aside = letter("{}", CAPTURE, 4, Why.OVERSIZED)
    assert opened(MemoryDeadLetters([aside]), ManualClock()).left_out() == list(left_out([aside]))
