"""A store built anew from the log beside the one in use, then switched to: ``cdc rebuild``.

Each step is noted in ``<name>.state`` when it is done, and each may be repeated, so that a command that was killed
anywhere goes on by being run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from secrets import token_hex

from cdc.operate.rebuild_rules import (
    GenerationProgress,
    RebuildPorts,
    RebuildState,
    Step,
    another,
    behind_claim,
    find_rebuild,
    given_up,
    has_read,
    level,
    level_with_log,
    next_rebuild,
    retried,
    rolled_back,
    share,
    taken_over,
    unread,
)
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SinkError, TopicError
from cdc.record.progress import Offsets
from cdc.record.schema import TableSchema

declare("rebuild_after_begin", "rebuild_after_fill", "rebuild_after_keep", "rebuild_after_switch")

Tell = Callable[[str, float | None], None]
"""Is called with each step in words, and with the share of the log that was read while it is."""


class Rebuild:
    """Rebuilds of one sink's store. ``separate``: its generations stay where they were built."""

    def __init__(self, sink: str, ports: RebuildPorts, *, separate: bool) -> None:
        self._sink = sink
        self._ports = ports
        self._separate = separate
        self._resumed = False

    def run(self, tell: Tell) -> RebuildState:
        """Build the store anew from the log and switch to it. Goes on where an earlier call was killed.

        Returns what was noted. SinkError when it was stopped while the new generation is filled, or when the store does
        not answer. LogError when no broker does.
        """
        run = self._begin()
        crash_point("rebuild_after_begin")
        if run.step == Step.BUILDING:
            run = self._filled(run, tell)
        crash_point("rebuild_after_fill")
        shapes = self._ports.shapes()
        if run.step == Step.KEEPING:
            run = self._keep(run, shapes, tell)
        crash_point("rebuild_after_keep")
        self._ports.generations.switch(run.generation, shapes)
        crash_point("rebuild_after_switch")
        self._retry()
        run = self._note(run.at(Step.DONE))
        if not self._separate:
            self._ports.generations.discard(run.generation, shapes)
        return run

    def roll_back(self) -> RebuildState:
        """Switch back to the generation before the last rebuild, unless that is done: a command that was killed behind
        its last step is told so. UsageError when there is none."""
        last = find_rebuild(self._ports.state.read(), self._sink)
        run = rolled_back(self._sink, last)
        if run == last and self._ports.generations.in_use() == run.previous:
            return run
        self._ports.generations.switch(run.previous, self._ports.shapes())
        self._retry()
        return self._note(run)

    def _begin(self) -> RebuildState:
        """The rebuild to go on with, or a new one, once nothing is left of the one before."""
        last, in_use = find_rebuild(self._ports.state.read(), self._sink), self._ports.generations.in_use()
        run = next_rebuild(self._sink, in_use, last)
        if run == last:
            # The other one went on since a command was killed behind the filling: it is waited for again.
            self._resumed = True
            return run if in_use == run.generation else run.at(Step.BUILDING)
        if last is not None:
            self._discard(last)
        return self._note(run)

    def _discard(self, last: RebuildState) -> None:
        """Remove what an earlier rebuild kept."""
        generations, shapes = self._ports.generations, self._ports.shapes()
        in_use = {generations.in_use()} if self._separate else set()
        for number in sorted({last.previous, last.generation} - in_use):
            generations.discard(number, shapes)

    def _filled(self, run: RebuildState, tell: Tell) -> RebuildState:
        """The rebuild behind its filling. Where the log cannot go on with its generation, as with one that was left for
        longer than the topics keep deletes, another one is begun."""
        try:
            return self._fill(run, tell)
        except TopicError:
            if not self._resumed:
                raise
        self._resumed = False
        self._ports.generations.discard(run.generation, self._ports.shapes())
        self._ports.letters.write(given_up(run, self._ports.letters.read()))
        return self._fill(self._note(another(run, self._ports.generations.in_use())), tell)

    def _fill(self, run: RebuildState, tell: Tell) -> RebuildState:
        """Feed the new generation until it shows what the old one shows."""
        name = f"generation {run.generation} of {self._sink}"
        whole: Offsets | None = None
        tell(f"{name} is filled from the log", 0.0)

        def reached(now: GenerationProgress) -> bool:
            nonlocal run, whole
            read = share(now.new, now.ends)
            tell(name, read)
            # For cdc status, and in whole hundredths: this is asked twice a second.
            if round(read, 2) != run.share:
                run = self._note(replace(run, share=round(read, 2)))
            whole = self._ports.snapshot() if whole is None else whole
            if whole is None or not has_read(now.new, {t: parts for t, parts in whole.items() if t in now.ends}):
                return False
            if not behind_claim(now.new, now.old, now.ends):
                return level(now.new, now.old, now.ends)
            return level_with_log(now.new, now.old, now.ends, self._ports.written())

        if not self._ports.filling.fill(run, reached):
            raise SinkError(
                f"the rebuild of {self._sink} was stopped: generation {run.generation} is not whole yet",
                hint=f"cdc rebuild {self._sink} goes on where it was",
            )
        return self._note(run.at(Step.KEEPING))

    def _keep(self, run: RebuildState, shapes: Sequence[TableSchema], tell: Tell) -> RebuildState:
        """Keep the generation in use, and let what the new one refused wait for the sink from now on."""
        tell(f"generation {run.previous} is kept for a rollback", None)
        self._ports.generations.keep(run.previous, shapes)
        letters = list(self._ports.letters.read())
        if count := unread(run, letters):
            tell(f"not read (cdc dead list), so lacking until a later record of the key: {count}", None)
        self._ports.letters.write(taken_over(run, letters))
        return self._note(run.at(Step.SWITCHING))

    def _retry(self) -> None:
        """Have what waits for the old generation tried on the new one, by the query that feeds it."""
        self._ports.letters.write(retried(self._sink, self._ports.letters.read(), partial(token_hex, 8)))

    def _note(self, run: RebuildState) -> RebuildState:
        self._ports.state.write([(run.key(), run.to_json())])
        return run
