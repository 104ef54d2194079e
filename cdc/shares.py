"""A sink in shares: which application feeds which tables, and one watermark of all of them. Pure.

A table belongs to the share that has the highest hash with its name (rendezvous): so a new table moves no other one,
and another number of shares moves as few as can be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from cdc.errors import UsageError
from cdc.foreign import quoted
from cdc.progress import LeftTable, SharedWatermark, Watermark
from cdc.topic import VIEW_SCHEMA

MOST = 100
_TEXT = re.compile("([1-9][0-9]{0,2})/([1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class Share:
    """The share of this ``number``, from 1 on, of ``count``."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Read the text form. UsageError for any other.

        >>> Share.parse("2/3")
        Share(number=2, count=3)
        """
        found = _TEXT.fullmatch(text)
        if found is None or not int(found[1]) <= int(found[2]) <= MOST:
            raise UsageError(
                f"{quoted(text)} is no share", hint=f"write 1/3, 2/3 and 3/3 for three applications; {MOST} at most"
            )
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def has(self, topic: str) -> bool:
        """Whether a topic's table, or view, is one of this share."""
        return owner(topic, self.count) == self.number


def owner(topic: str, count: int) -> int:
    """The number of the share, of so many, that a topic belongs to. All generations of a view belong to one."""
    name = table_of_topic(topic)

    def weight(number: int) -> bytes:
        return blake2b(f"{number}/{name}".encode(), digest_size=8).digest()

    return max(range(1, count + 1), key=weight)


def table_of_topic(topic: str) -> str:
    """The table's name, or the view's without its generation.

    >>> table_of_topic("shop.view.order_search.2"), table_of_topic("shop.public.orders")
    ('view.order_search', 'public.orders')
    """
    _, _, name = topic.partition(".")
    shorter, _, generation = name.rpartition(".")
    return shorter if name.startswith(f"{VIEW_SCHEMA}.") and generation.isdecimal() else name


def together(shares: Sequence[Watermark | None]) -> SharedWatermark | None:
    """The watermark of a store whose shares have these. A share that has none yet claims nothing, and so the whole
    shows nothing. None where no share has one."""
    known = [share for share in shares if share is not None]
    if not known:
        return None
    least = min(known, key=_claimed)
    # Of the same server, so that a reader hears that the store is behind.
    nothing = Watermark(epoch=least.epoch, lsn=0, lineage=least.lineage)
    every = tuple(share or nothing for share in shares)
    return SharedWatermark(
        epoch=least.epoch,
        lsn=min(every, key=_claimed).lsn,
        offsets={topic: parts for share in known for topic, parts in share.offsets.items()},
        topic_ids={topic: one for share in known for topic, one in share.topic_ids.items()},
        held={topic: hold for share in known for topic, hold in share.held.items()},
        level_ms=min(share.level_ms for share in every),
        aside={topic: why for share in known for topic, why in share.aside.items()},
        epoch_id=least.epoch_id,
        lineage=least.lineage,
        versions={topic: one for share in known for topic, one in share.versions.items()},
        shares=every,
        left=_left(known),
    )


def moved(old: Watermark, count: int) -> list[Watermark | None]:
    """The watermarks of so many shares, in their order, in place of a store's. None for a share without a table.

    Each claims the least of those that fed its tables, and is read on from where its tables were. Where a share had not
    begun, nobody claims anything: which tables it would have had is not known.
    """
    whole = all(part.topic_ids or part.offsets for part in old.parts)
    topics = {*old.topic_ids, *old.offsets}
    left = _left(old.parts)
    return [
        _share(
            old,
            [topic for topic in topics if owner(topic, count) == number],
            {topic: one for topic, one in left.items() if owner(topic, count) == number},
            whole=whole,
        )
        for number in range(1, count + 1)
    ]


def _share(old: Watermark, topics: Iterable[str], left: Mapping[str, LeftTable], *, whole: bool) -> Watermark | None:
    mine = frozenset(topics)
    sources = [part for part in old.parts if not mine.isdisjoint([*part.topic_ids, *part.offsets])]
    if not sources:
        # Its tables that are none now may be named again. Of a store that claims nothing, no share has a table yet.
        begun = old.topic_ids or old.offsets
        return Watermark(epoch=old.epoch, lsn=0, left=left) if left or not begun else None
    least = min(sources, key=_claimed)
    return Watermark(
        epoch=least.epoch,
        lsn=least.lsn if whole else 0,
        offsets={topic: parts for topic, parts in old.offsets.items() if topic in mine},
        topic_ids={topic: one for topic, one in old.topic_ids.items() if topic in mine},
        held={topic: hold for topic, hold in old.held.items() if topic in mine},
        level_ms=min(part.level_ms for part in sources),
        aside={topic: why for topic, why in old.aside.items() if topic in mine},
        epoch_id=least.epoch_id,
        lineage=least.lineage,
        versions={topic: one for topic, one in old.versions.items() if topic in mine},
        left=left,
    )


def _left(parts: Iterable[Watermark]) -> dict[str, LeftTable]:
    """The tables that the store is fed with no more, by all of its applications together."""
    known = list(parts)
    fed = {topic for part in known for topic in part.topic_ids if topic not in part.left}
    return {topic: one for part in known for topic, one in part.left.items() if topic not in fed}


def standing_of_shares(watermark: Watermark | None) -> str:
    """Why a store that is fed in shares does not show more, for a sentence.
    Empty where it has one watermark.

    >>> one = Watermark(epoch=1, lsn=8, offsets={"t": {0: 3}})
    >>> standing_of_shares(together([one, None])), standing_of_shares(one)
    (' (its share 2/2 has not begun)', '')
    """
    parts = watermark.parts if watermark is not None else ()
    if watermark is None or len(parts) < 2:
        return ""
    number, last = min(enumerate(parts, 1), key=lambda one: _claimed(one[1]))
    begun = last.topic_ids or last.offsets
    return f" (its share {number}/{len(parts)} {'is the last' if begun else 'has not begun'})"


def _claimed(watermark: Watermark) -> tuple[int, int]:
    return watermark.epoch, watermark.lsn


def those_with(watermark: Watermark, topics: Callable[[Watermark], bool]) -> tuple[Watermark, ...]:
    """The parts of a watermark that have some topics. All parts where none has: then none of them speaks for any."""
    return tuple(part for part in watermark.parts if topics(part)) or watermark.parts
