"""Native capture and Debezium side by side on the same tables: what ``cdc connect compare`` does, over its ports.

Each gets topics and a slot of its own, both read one publication. Nothing of the pipeline itself is touched.
Two logical messages mark where the comparison begins and ends. The next run removes the remains of a killed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from cdc.clock import Clock
from cdc.comparison.commit_window import CommitWindow, comparable
from cdc.comparison.ports import ComparisonPorts
from cdc.comparison.sides import Sides
from cdc.comparison.source_rows import RowsAtCut
from cdc.comparison.verdict import Comparison, TableVerdict, judge
from cdc.cuts import Cut
from cdc.errors import LogError, UsageError

Say = Callable[[str], None]
_POLL_S = 0.2
_MARK_S = 1.0
_STEADY_S = 2.0
_REACH_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The changes to compare: those of ``for_s`` seconds, or those made until ``command`` has ended. With ``rows`` the
    rows of a first snapshot too. ``keep``: leave topics, slots and connector."""

    for_s: float = 60.0
    command: Sequence[str] = ()
    rows: bool = False
    keep: bool = False


class Comparing:
    """Comparisons of one pipeline's tables. ``say`` is given a sentence for each step."""

    def __init__(self, sides: Sides, ports: ComparisonPorts, say: Say, clock: Clock) -> None:
        self._sides = sides
        self._ports = ports
        self._say = say
        self._clock = clock

    def run(self, trial: Trial) -> Comparison:
        """Run both, compare their topics, and remove what was made.

        Raises what stands in the way of either: ConfigError, SourceError, SlotError, ConnectError, TopicError,
        LogError. UsageError when ``command`` failed.
        """
        self.clean()
        with ExitStack() as exits:
            if not trial.keep:
                exits.callback(self.clean)
            for side in (self._ports.native, self._ports.debezium):
                exits.enter_context(closing(side))
                side.start(rows=trial.rows)
            exits.enter_context(closing(self._ports.source))
            begin = self._begin()
            self._say("both capture; comparing from here on")
            self._work(trial)
            end = self._end()
            self._say("comparing the topics")
            return self._compare(CommitWindow(begin, end, trial.rows), self._cut())

    def clean(self) -> None:
        """Remove what a comparison has made, as far as it is there."""
        for sentence in self._ports.clean():
            self._say(sentence)

    def _begin(self) -> int:
        """Mark until Debezium writes one. The LSN behind it. The first snapshot may take its time before."""
        marked: dict[str, int] = {}
        next_s = self._clock.monotonic()
        while True:
            now_s = self._clock.monotonic()
            if now_s >= next_s:
                next_s = now_s + _MARK_S
                content = f"begin {len(marked)}"
                marked[content] = self._ports.source.mark(content)
                self._check()
            seen = marked.keys() & set(self._ports.debezium.marks())
            if seen:
                lsn = max(marked[content] for content in seen)
                self._await_native(lsn)
                return lsn
            self._clock.sleep(_POLL_S)

    def _work(self, trial: Trial) -> None:
        if not trial.command:
            until_s = self._clock.monotonic() + trial.for_s
            while (left_s := until_s - self._clock.monotonic()) > 0:
                self._ports.native.check()
                self._clock.sleep(min(1.0, left_s))
            return
        code = self._ports.run(trial.command)
        if code != 0:
            raise UsageError(f"{trial.command[0]} ended with {code}", hint="nothing was compared")

    def _end(self) -> int:
        """Mark, and return when both have passed it and Debezium's topics are still."""
        lsn = self._ports.source.mark("end")
        deadline_s = self._clock.monotonic() + _REACH_S
        while "end" not in self._ports.debezium.marks():
            self._check()
            if self._clock.monotonic() > deadline_s:
                raise LogError(
                    f"Debezium did not pass the last change in {_REACH_S:g} s",
                    hint="the load may be more than it carries: compare for a shorter time, or with less load",
                )
            self._clock.sleep(_POLL_S)
        self._await_native(lsn)
        ends = self._ports.written.ends()
        while True:
            self._clock.sleep(_STEADY_S)
            now = self._ports.written.ends()
            if now == ends:
                return lsn
            ends = now

    def _cut(self) -> Cut:
        """One state of the source, when the native topics hold everything that is in it."""
        cut = self._ports.source.cut()
        self._await_native(cut.fence)
        return cut

    def _check(self) -> None:
        self._ports.native.check()
        self._ports.debezium.check()

    def _await_native(self, lsn: int) -> None:
        deadline_s = self._clock.monotonic() + _REACH_S
        while self._clock.monotonic() < deadline_s:
            self._ports.native.check()
            if self._ports.native.reached() >= lsn:
                return
            self._clock.sleep(_POLL_S)
        raise LogError(f"the native capture did not pass the last change in {_REACH_S:g} s", hint="cdc check")

    def _compare(self, window: CommitWindow, cut: Cut) -> Comparison:
        written, encoding = self._ports.written, self._sides.native.log.encoding
        source, facts = RowsAtCut(self._ports.source, cut), written.facts()

        def verdict(table: str, theirs: str, ours: str) -> TableVerdict:
            whole = written.records(ours, table) if ours else []
            one, two = window.cut(written.records(theirs, table) if theirs else [], whole)
            return judge(
                table,
                encoding,
                [comparable(record, self._sides.debezium.name) for record in one],
                [comparable(record, self._sides.native.name) for record in two],
                facts,
                source.of(table, whole),
                whole,
            )

        topics = self._sides.by_table(*written.topics())
        verdicts = tuple(verdict(table, theirs, ours) for table, (theirs, ours) in topics.items())
        return Comparison(encoding=encoding, begin=window.begin, end=window.end, verdicts=verdicts)
