"""Putting right what a comparison found in documents of views: their runners do it, through the log.

A row that were written into one store alone would come back wrong with the next rebuild. So a view's runner is
asked to compute the documents from the topics and to publish them anew: each store takes them, because they are newer
than anything that it can hold. The view's topic tells apart those that differ still. Where that has what the source
has, one store did not take it, and it is written there. Where it has something else, the view's state is unlike the
topics, and nothing but building the view anew helps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from cdc.process.clock import Clock
from cdc.process.errors import CdcError, Exit, Retry
from cdc.record.position import Position
from cdc.record.topic_names import TableName
from cdc.verification.ports import (
    AsksRunners,
    PublishedDocument,
    RepairRow,
    RepairTarget,
    VerifiedSource,
    VerifiedTable,
)
from cdc.verification.repair import Repaired, certain_cut, record_key, remove_impossible
from cdc.verification.result import StoreVerdict
from cdc.wire.canonical import CanonicalTable
from cdc.wire.plain import PlainTable


class RunnerSilent(CdcError):
    """A view's runner does not answer."""

    exit = Exit.UNAVAILABLE
    retry = Retry.LATER


class ViewRepair:
    """Repairs of views. ``targets``: by sink. ``timeout_s``: how long a runner may take to answer."""

    def __init__(
        self,
        runners: AsksRunners,
        source: VerifiedSource,
        targets: Mapping[str, RepairTarget],
        tables: Mapping[TableName, VerifiedTable],
        clock: Clock,
        *,
        timeout_s: float,
    ) -> None:
        self._runners = runners
        self._source = source
        self._targets = targets
        self._tables = tables
        self._clock = clock
        self._timeout_s = timeout_s
        self._answered: dict[TableName, set[str]] = defaultdict(set)
        self._silent: dict[TableName, str] = {}

    def ask(self, verdicts: Sequence[StoreVerdict]) -> list[Repaired]:
        """Have every differing document that these hold published anew. A silent runner is told of as a refusal."""
        remove_impossible(self._targets, self._tables, verdicts)
        return [one for view, some in _by_view(verdicts).items() for one in self._asked(view, some)]

    def _asked(self, view: TableName, verdicts: Sequence[StoreVerdict]) -> list[Repaired]:
        shape = self._tables[view].shape
        records = {key: record_key(shape, key) for verdict in verdicts for key in verdict.differing}
        asked = sorted({record for record in records.values() if record is not None})
        parked: Mapping[bytes, str] = {}
        if asked and view not in self._silent:
            try:
                parked = self._runners.recompute(view, asked, self._timeout_s)
                self._answered[view] |= records.keys()
            except RunnerSilent as nobody:
                self._silent[view] = f"{nobody.message}: {nobody.hint}"
        silent = self._silent.get(view, "")
        done = []
        for verdict in verdicts:
            one = Repaired(sink=verdict.sink, table=view)
            one.unread = [key for key in verdict.differing if records[key] is None]
            if one.unread:
                versions = {key: verdict.positions.get(key, "") for key in one.unread}
                self._targets[verdict.sink].remove(shape, versions)
            own = [record for key in verdict.differing if (record := records[key]) is not None]
            one.refused = [silent for _ in own] if silent else [parked[record] for record in own if record in parked]
            one.recomputed = len(own) - len(one.refused)
            done.append(one)
        return done

    def judge(self, verdicts: Sequence[StoreVerdict], epoch: int) -> list[Repaired]:
        """Tell apart what differs though its runner has published it: write it where one store alone lacks it, and
        refuse the rest. SourceError as :func:`cdc.verification.repair.certain_cut`."""
        found = []
        for verdict in verdicts:
            keys = [key for key in verdict.differing if key in self._answered[verdict.table]]
            if keys:
                found.append(self._judged(verdict, keys, epoch))
        return found

    def _judged(self, verdict: StoreVerdict, keys: Sequence[str], epoch: int) -> Repaired:
        table = self._tables[verdict.table]
        bound = Position(epoch, certain_cut(self._source, self._clock).settled, 0).text()
        rows = self._source.rows_of(table, keys)
        records = {key: record for key in keys if (record := record_key(table.shape, key)) is not None}
        published = self._runners.published(verdict.table, set(records.values()))
        plain, canonical = PlainTable(table.shape).row, CanonicalTable(table.shape).row
        one = Repaired(sink=verdict.sink, table=verdict.table)
        for key, record in records.items():
            there = published.get(record, PublishedDocument("", None))
            row = None if there.after is None else canonical(plain(there.after))
            if row == rows.get(key):
                one.refused += self._put(verdict, there, RepairRow(record, there.after))
                one.written += there.after is not None
                one.deleted += there.after is None
            elif there.pos < bound:
                one.refused.append(unlike(verdict.table))
        return one

    def _put(self, verdict: StoreVerdict, there: PublishedDocument, row: RepairRow) -> Sequence[str]:
        return self._targets[verdict.sink].put(self._tables[verdict.table].shape, there.pos, [row]) if there.pos else ()


def unlike(view: TableName) -> str:
    """The sentence on a document that the view's topic has otherwise than the source gives it.

    >>> unlike(TableName("view", "v"))
    "the view's topic has another document than its text gives: cdc view rebuild v builds it anew"
    """
    return f"the view's topic has another document than its text gives: cdc view rebuild {view.table} builds it anew"


def _by_view(verdicts: Sequence[StoreVerdict]) -> Mapping[TableName, list[StoreVerdict]]:
    found: dict[TableName, list[StoreVerdict]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.differing:
            found[verdict.table].append(verdict)
    return found
