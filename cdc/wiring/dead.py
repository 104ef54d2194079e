"""The dead letters: read, and orders about them given to whoever feeds the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from secrets import token_hex

from cdc.clock import SYSTEM_CLOCK
from cdc.dead import CAPTURE, DeadLetter, Why, waiting
from cdc.errors import TopicError
from cdc.orders import drop_by_hand, identity_of, order
from cdc.settings import Settings
from cdc.topic import dead_topic
from cdc.wire.plain import PlainTable
from cdc.wiring import open_schemas, require_broker
from cdc.wiring.stores import open_store

_POLL_S = 0.2


def read_letters(settings: Settings) -> list[DeadLetter]:
    """Every letter of the pipeline, oldest first. TopicError before ``cdc init``."""
    from connectors.kafka.letters import DeadLetterTopic

    require_broker(settings)
    return list(DeadLetterTopic(settings.log, dead_topic(settings.name)).read())


def give_orders(
    settings: Settings, letters: Sequence[DeadLetter], why: Why, *, timeout_s: float
) -> Iterator[tuple[DeadLetter, DeadLetter | None]]:
    """Write an order about each letter; yields each with the answer to it, None for those that had none in time.

    The orders stay: the next application that feeds the store carries out what is not answered yet.
    """
    from connectors.kafka.feed import DeadLetterFeed
    from connectors.kafka.letters import DeadLetterTopic

    topic = dead_topic(settings.name)
    mine = [letter for letter in letters if letter.sink == CAPTURE]
    # Nobody has these in mind: they are answered here.
    DeadLetterTopic(settings.log, topic).write(answers := [drop_by_hand(letter) for letter in mine])
    yield from zip(mine, answers, strict=True)
    unanswered = {token_hex(8): letter for letter in letters if letter.sink != CAPTURE}
    with closing(DeadLetterFeed(settings.log, topic)) as feed:
        DeadLetterTopic(settings.log, topic).write(order(letter, why, one) for one, letter in unanswered.items())
        until = SYSTEM_CLOCK.monotonic() + timeout_s
        while unanswered and SYSTEM_CLOCK.monotonic() < until:
            for heard in feed.poll(_POLL_S):
                identity = identity_of(heard)
                if heard.why in (Why.RELEASED, Why.HELD) and identity in unanswered:
                    yield unanswered.pop(identity), heard
    for letter in unanswered.values():
        yield letter, None


def left_out(settings: Settings) -> Iterator[str]:
    """A sentence for each row that capture put aside for its size: the stores may lack it."""
    with suppress(TopicError):
        for letter in waiting(read_letters(settings)):
            if letter.why is Why.OVERSIZED:
                key = (letter.key or b"").decode(errors="replace")
                yield f"capture left out {letter.topic} {key}: {letter.reason}"


def shown_now(settings: Settings, letters: Sequence[DeadLetter]) -> Iterator[str]:
    """A sentence for the key of each letter: what its store shows of it now."""
    shapes = {shape.topic: shape for shape in open_schemas(settings).versions()}
    for sink in sorted({letter.sink for letter in letters} - {CAPTURE}):
        with closing(open_store(sink, settings)) as store:
            for letter in letters:
                shape = shapes.get(letter.topic)
                if letter.sink != sink or shape is None or letter.key is None or not letter.parks:
                    continue
                try:
                    key = PlainTable(shape).key(letter.key)
                except ValueError:
                    continue
                held = store.reader.get(shape, key)
                if held is None or held.row is None:
                    yield f"{sink} shows no row {key} of {shape.table} until its next change"
                else:
                    yield f"{sink} shows row {key} of {shape.table} as of {held.pos} until its next change"
