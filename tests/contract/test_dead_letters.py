"""The double of the dead letters keeps the promises of their topic: one suite over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.settings.model import LogSettings
from cdc.wire.dead_letter import DeadLetter, DeadLetters, LetterFeed, Why
from connectors.kafka import compacted_topic as compacted
from connectors.kafka.dead_letters import DeadLetterTopic
from connectors.kafka.feed import DeadLetterFeed
from tests.memory_log import MemoryDeadLetters
from tests.waiting import wait_until

REFUSED = DeadLetter(
    sink="search",
    why=Why.REFUSED,
    topic="shop.public.orders",
    partition=1,
    offset=7,
    reason='column "total": not a number',
    key=b'{"id":1}',
    value=None,
    headers=(("pos", b"1/10/1"), ("empty", None), ("pos", b"twice")),
)
LETTERS = [
    REFUSED,
    replace(REFUSED, why=Why.BEHIND, offset=8, value=b"\x00\xff", headers=()),
    replace(REFUSED, why=Why.UNREADABLE, offset=9, key=None),
    replace(REFUSED, why=Why.RETRY, offset=8),
    replace(REFUSED, why=Why.RELEASED, offset=8),
]


@dataclass(frozen=True)
class Letters:
    """An empty topic of dead letters, and what follows it."""

    letters: DeadLetters
    follow: Callable[[], LetterFeed]


@pytest.fixture(params=["memory", "kafka"])
def topic(request: pytest.FixtureRequest) -> Iterator[Letters]:
    if request.param == "memory":
        memory = MemoryDeadLetters()
        yield Letters(memory, memory.follow)
        return
    servers, name = request.getfixturevalue("kafka"), f"{request.getfixturevalue('topic_prefix')}.dead"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    wait_until(lambda: compacted.stands(admin.list_topics(name, timeout=10).topics.get(name), 0))
    settings = LogSettings(bootstrap_servers=servers)
    yield Letters(DeadLetterTopic(settings, name), partial(DeadLetterFeed, settings, name))


def followed(feed: LetterFeed, count: int) -> list[DeadLetter]:
    """The next ``count`` letters, or more where more came at once."""
    found: list[DeadLetter] = []

    def enough() -> bool:
        found.extend(feed.poll(0.1))
        return len(found) >= count

    wait_until(enough)
    return found


def test_letters_are_read_as_written_in_order(topic: Letters) -> None:
    assert list(topic.letters.read()) == []
    topic.letters.write(LETTERS[:2])
    topic.letters.write([])
    topic.letters.write(iter(LETTERS[2:]))
    assert list(topic.letters.read()) == LETTERS
    assert list(topic.letters.read()) == LETTERS, "reading takes nothing away"


def test_a_feed_begins_at_the_end_of_its_opening(topic: Letters) -> None:
    topic.letters.write(LETTERS[:2])
    first = topic.follow()
    topic.letters.write(LETTERS[2:4])
    second = topic.follow()
    assert followed(first, 2) == LETTERS[2:4]
    topic.letters.write(LETTERS[4:])
    assert followed(first, 1) == followed(second, 1) == LETTERS[4:]
    assert first.poll(0.05) == second.poll(0.05) == [], "each letter comes once"
    first.close()
    second.close()
