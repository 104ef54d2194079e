"""The log as an application sees it that feeds a share of each sink's tables: nothing of the others is its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cdc.dead import DeadLetter, DeadLetters, LetterFeed
from cdc.epochs import EpochsState
from cdc.errors import ConfigError
from cdc.progress import Offsets
from cdc.schema import TableSchema
from cdc.shares import Share
from spark.ports import LogQuestions, SinkTopics


class ShareLog:
    """The topics of a share's tables. Implements :class:`spark.ports.LogQuestions`."""

    def __init__(self, log: LogQuestions, share: Share) -> None:
        self._log = log
        self._share = share

    def topics(self, sink: str) -> SinkTopics:
        """ConfigError where no table is of this share: nobody would ever hear of it."""
        every = self._log.topics(sink)
        mine = every.without([topic for topic in every.ids if not self._share.has(topic)])
        if every.ids and not mine.ids:
            raise ConfigError(
                f"no table of {sink} is of share {self._share}",
                hint=f"take fewer shares: stop them all, then cdc share {sink} N",
            )
        return mine

    def ends(self, topics: SinkTopics) -> Offsets:
        return self._log.ends(topics)

    def epochs(self) -> EpochsState:
        return self._log.epochs()

    def newest(self) -> tuple[int, int] | None:
        return self._log.newest()

    def schemas(self) -> list[TableSchema]:
        return self._log.schemas()


class ShareLetters:
    """The letters of a share's tables, and the orders about them. Implements :class:`cdc.dead.DeadLetters`."""

    def __init__(self, dead: DeadLetters, share: Share) -> None:
        self._dead = dead
        self._share = share

    def read(self) -> Iterator[DeadLetter]:
        return (letter for letter in self._dead.read() if self._share.has(letter.topic))

    def write(self, letters: Iterable[DeadLetter]) -> None:
        self._dead.write(letters)


class ShareLetterFeed:
    """The same, followed. Implements :class:`cdc.dead.LetterFeed`."""

    def __init__(self, feed: LetterFeed, share: Share) -> None:
        self._feed = feed
        self._share = share

    def poll(self, timeout_s: float) -> list[DeadLetter]:
        return [letter for letter in self._feed.poll(timeout_s) if self._share.has(letter.topic)]

    def close(self) -> None:
        self._feed.close()
