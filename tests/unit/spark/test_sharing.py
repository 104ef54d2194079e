"""An application that feeds a share of the tables: what it hears of the log, and who else may write to its store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from cdc.dead import DeadLetter, Why
from cdc.errors import ActiveError, ConfigError
from cdc.progress import Watermark
from cdc.shares import Share, owner
from sinks.memory import MemoryStore
from spark.place import StoreMoved, check_place
from spark.ports import SinkTopics
from spark.sharing import ShareLetterFeed, ShareLetters, ShareLog
from tests.unit.spark.doubles import MemoryFacts

NAMES = [f"shop.public.t{number}" for number in range(12)]
ONE, TWO = Share(1, 2), Share(2, 2)


@dataclass
class Facts(MemoryFacts):
    """Topics of some tables and of a view."""

    names: list[str] = field(default_factory=lambda: [*NAMES, "shop.view.search.3"])

    def topics(self, sink: str) -> SinkTopics:
        views = {topic: "view.search" for topic in self.names if ".view." in topic}
        return SinkTopics(ids=dict.fromkeys(self.names, "id"), partitions=dict.fromkeys(self.names, 4), views=views)


def _letter(topic: str) -> DeadLetter:
    return DeadLetter(
        sink="cache",
        why=Why.REFUSED,
        topic=topic,
        partition=0,
        offset=7,
        reason="it does not fit",
        key=b"k",
        value=b"v",
    )


class Topic:
    """A topic of letters. Implements :class:`cdc.dead.DeadLetters` and :class:`cdc.dead.LetterFeed`."""

    def __init__(self, letters: list[DeadLetter]) -> None:
        self.letters = letters

    def read(self) -> list[DeadLetter]:
        return self.letters

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        return self.letters

    def write(self, letters: object) -> None:
        raise NotImplementedError

    def close(self) -> None: ...


def test_the_shares_have_each_topic_once() -> None:
    both = [ShareLog(Facts(), share).topics("cache") for share in (ONE, TWO)]
    assert sorted([*both[0].ids, *both[1].ids]) == sorted(Facts().names)
    assert all(part.ids.keys() == part.partitions.keys() for part in both)
    assert len(both[0].views) + len(both[1].views) == 1


def test_a_share_without_a_table_says_so() -> None:
    with pytest.raises(ConfigError, match="no table of cache is of share 2/2"):
        topic = next(name for name in NAMES if owner(name, 2) == 1)
        ShareLog(Facts(names=[topic]), TWO).topics("cache")


def test_letters_are_heard_by_the_share_of_their_table() -> None:
    topic = Topic([_letter(name) for name in NAMES])
    heard = [list(ShareLetters(topic, share).read()) for share in (ONE, TWO)]
    assert heard == [ShareLetterFeed(topic, share).poll(0) for share in (ONE, TWO)]
    assert all(heard)
    assert sorted(letter.topic for part in heard for letter in part) == sorted(NAMES)


def test_h370_two_applications_of_one_share_are_refused() -> None:
    memory = MemoryStore()
    mine, other, same = memory.open(ONE), memory.open(TWO), memory.open(ONE)
    mark = Watermark(epoch=1, lsn=5, offsets={NAMES[0]: {0: 3}})
    mine.watermarks.write(mark)
    other.watermarks.write(Watermark(epoch=1, lsn=9, offsets={NAMES[1]: {0: 4}}))
    check_place("cache", mine, mark, None)
    same.watermarks.write(replace(mark, lsn=6, offsets={NAMES[0]: {0: 4}}))
    with pytest.raises(ActiveError, match="another cdc sink is writing"):
        check_place("cache", mine, mark, None)


def test_a_share_of_an_emptied_store_begins_anew() -> None:
    memory = MemoryStore()
    mine = memory.open(ONE)
    mark = Watermark(epoch=1, lsn=5, offsets={NAMES[0]: {0: 3}})
    mine.watermarks.write(mark)
    memory.notes.clear()
    with pytest.raises(StoreMoved, match="restored or emptied"):
        check_place("cache", mine, mark, None)
