"""Records that are too large for their topic: put aside by policy, whole or by their hash, once."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from cdc.record.ports import Withheld
from cdc.record.position import Position
from cdc.settings.model import LogSettings, parse
from cdc.wire.dead_letter import CAPTURE, DeadLetter, Parked, Why, waiting
from connectors.kafka.dead_letters import Oversized
from tests.unit.spark.doubles import MemoryDead

LIMIT = 100_000
HEADERS = [("pos", Position(1, 0x88, 3).text().encode()), ("op", b"u"), ("ver", b"1")]


def made(*topics: str) -> tuple[Oversized, MemoryDead]:
    dead = MemoryDead()
    return Oversized(LogSettings(bootstrap_servers="b:1", max_message_bytes=LIMIT), dead, topics), dead


def test_h58_only_large_rows_of_tables_with_the_policy_go_aside() -> None:
    oversized, _ = made("shop.public.docs")
    assert oversized
    assert oversized.too_large("shop.public.docs", b"k", b"x" * LIMIT)
    assert not oversized.too_large("shop.public.docs", b"k", b"x" * (LIMIT - 2000))
    assert not oversized.too_large("shop.public.docs", b"k", None)
    assert not oversized.too_large("shop.public.orders", b"k", b"x" * LIMIT)
    assert not made()[0]


def test_h58_the_letter_has_the_record_if_it_fits_and_its_hash() -> None:
    oversized, dead = made("t")
    small, large = b"x" * (LIMIT + 1), b"y" * (3 * LIMIT)
    oversized.put_aside("t", 2, [(b'{"id":1}', small, HEADERS), (b'{"id":2}', large, HEADERS)])
    first, second = dead.letters
    assert (first.sink, first.why, first.topic, first.partition, first.offset) == (CAPTURE, Why.OVERSIZED, "t", 2, 0x88)
    assert (first.value, second.value) == (small, None)
    assert hashlib.sha256(large).hexdigest() in second.reason
    assert dict(first.headers)["pos"] == HEADERS[0][1]
    assert "xxx" not in first.reason


def test_h58_the_letter_of_a_row_never_built_says_its_size() -> None:
    oversized, dead = made("t")
    assert oversized.too_large("t", b"k", Withheld(200_000_000))
    oversized.put_aside("t", 1, [(b'{"id":1}', Withheld(200_000_000), HEADERS)])
    (letter,) = dead.letters
    assert letter.value is None
    assert letter.reason == "the row has 200,000,000 bytes in the source, and the topic takes 100,000"
    assert DeadLetter.from_record(letter.key, letter.value, letter.record_headers()) == letter


def test_h58_a_record_sent_again_is_the_same_letter() -> None:
    oversized, dead = made("t")
    for _ in range(2):
        oversized.put_aside("t", 0, [(b'{"id":1}', b"x" * LIMIT, HEADERS)])
    assert len(waiting(dead.letters)) == 1
    assert len(Parked("cache", dead.letters)) == 0
    letter = dead.letters[0]
    assert DeadLetter.from_record(letter.key, letter.value, letter.record_headers()) == letter


def test_h12_h58_a_letter_waits_for_brokers_that_stand_still() -> None:
    class GivenUp(Exception):
        pass

    asked = 0

    def still_waiting() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise GivenUp

    # Nobody listens on port 1.
    document = {
        "name": "shop",
        "source": {"dsn": "dbname=x", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:1", "max_message_bytes": LIMIT, "oversized": "dead-letter"},
    }
    oversized = Oversized.of(parse(document), {"public.docs": "t"}, waiting=still_waiting)
    with pytest.raises(GivenUp):
        oversized.put_aside("t", 0, [(b'{"id":1}', b"x" * LIMIT, HEADERS)])
    assert asked == 3


def test_the_policy_of_a_table_goes_over_the_one_for_all() -> None:
    def topics(**log: Any) -> list[str]:
        document = {
            "name": "shop",
            "source": {"dsn": "dbname=x", "tables": ["public.*"]},
            "log": {"bootstrap_servers": "b:1", **log},
        }
        tables = {"public.a": "shop.public.a", "public.b": "shop.public.b"}
        oversized = Oversized.of(parse(document), tables)
        return [topic for topic in tables.values() if oversized.concerns(topic)]

    assert topics() == ["shop.public.a", "shop.public.b"], "by default nothing stops"
    assert topics(oversized="stop") == []
    assert topics(oversized_tables={"public.a": "stop"}) == ["shop.public.b"]
    assert topics(oversized="stop", oversized_tables={"public.a": "dead-letter"}) == ["shop.public.a"]
