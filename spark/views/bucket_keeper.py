"""The runner of one view whose state lies in Delta tables: from cut to cut of the log, with executors for its work.

A turn takes up the cut at the newest progress record: new versions of the state's tables, then one manifest with the
keys that it concerns. The next turn has their documents made at the state's fence, publishes them, and writes the
manifest without them. It follows the rules of :class:`cdc.views.keeper.Keeper`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.progress import Progress
from cdc.views.asked_keys import AskedOnce, rows_asked
from cdc.views.awaited_tables import AwaitedTables
from cdc.views.cut_reading import CutReading
from cdc.views.fences import BEFORE_ALL, Fence, fence_of
from cdc.views.keeper import Turn
from cdc.views.keeper_rules import (
    claim_of,
    cut_is_whole,
    in_order,
    log_cut,
    log_parked,
    noted_after,
    of_another_topic,
    prepared,
    published_before,
    shown_up_to,
    too_old,
    unsound,
    unswept_tables,
)
from cdc.views.record_changes import RecordChanges
from cdc.views.row_changes import RowChange
from cdc.views.state_reach import Reached
from cdc.views.view_manifest import ALL_DUE, KEYS_DUE, NONE_DUE, ViewManifest
from cdc.views.view_records import ViewRecords, key_row
from spark.views.bucket_files import PENDING, PUBLISHED, WAITING, FileChange
from spark.views.cut_flow import CutFlow
from spark.views.document_steps import MakeDocuments, shares_for
from spark.views.keeper_parts import BucketKeeperParts
from spark.views.staged_documents import staged_pieces
from spark.views.view_batches import BatchReport, CutBatch
from spark.views.view_parts import Files
from spark.views.walk_steps import key_name

log = logging.getLogger(__name__)
declare("view_staged", "view_piece_published", "view_published")

CLEAN_EVERY = 100
"""Manifests between two times that files are removed which are of no use."""
_KEPT_HOURS = 1
"""For so long a file that went stays: somebody who looks may be reading it."""
PIECE = 5_000
"""Documents of one transaction, at most."""


class BucketKeeper:
    """Keeps one view. ``largest``: bytes of a document's row. ``piece``: documents of one transaction, at most.

    :meth:`begin` first, then :meth:`turn` again and again.
    """

    def __init__(self, parts: BucketKeeperParts, *, clock: Clock, largest: int = 900_000, piece: int = PIECE) -> None:
        self._parts = parts
        self._plan = parts.shipped.parts().plan
        self._input, self._output = parts.input, parts.output
        self._tables, self._batches = parts.tables, parts.batches
        self._clock = clock
        self._largest, self._piece = largest, piece
        self._topics = {topic: table for table, topic in parts.topics.items()}
        self._records = ViewRecords(
            self._plan, parts.view, parts.topic, parts.partitions, name=parts.name, database=parts.database
        )
        self._asked = AskedOnce(parts.input, parts.output, parts.topic)
        self._letters = RecordChanges(self._plan, self._topics, self._input.shape)
        self._cuts = CutFlow(parts, self._plan, self._topics)
        self._watched = AwaitedTables(parts.input, parts.output, parts.topics, clock)
        self._at_end = False
        self._claimed = self._topic_claim = BEFORE_ALL
        self.read_bytes = 0
        """What tasks have read of the state's files for the newest cut and its documents."""
        found = self._tables.document()
        if found is None:
            # Rows of tables without a manifest are of another state, or of no whole batch (H240).
            self._tables.commit((), list(self._tables.versions()))
            reached, versions = parts.bound.begun(parts.generation), self._tables.versions()
            self.manifest = ViewManifest(reached=reached, buckets=parts.shipped.buckets, versions=versions)
        else:
            self.manifest = ViewManifest.from_json(found)
            self.manifest.require(parts.bound, parts.generation, parts.shipped.buckets, parts.shipped.root)

    @property
    def reached(self) -> Reached:
        """How far the state is. Rows of which a value is not known hold the view as well."""
        return replace(self._at, held=self._held)

    @property
    def _at(self) -> Reached:
        return self.manifest.reached

    @property
    def _held(self) -> Mapping[str, str]:
        return self.manifest.held

    @property
    def claimed(self) -> Fence:
        """Up to where everything is published."""
        return self._claimed

    @property
    def level(self) -> bool:
        """Whether nothing waits, and the claim has reached the newest progress that was seen."""
        reached = self._at
        done = self.prepared and reached.sweep is None and self._asked.taken(reached.asked) is None
        return self._at_end and done and not self.manifest.due and self._claimed == reached.fence

    @property
    def prepared(self) -> bool:
        """Whether its state is whole at its fence, so that all its documents could be published."""
        return prepared(self._at, self._held, self._unswept())

    def sizes(self) -> tuple[int, int]:
        """How many keys wait, and how many are parked, with rows that are not known."""
        return self.manifest.waiting, len(self.manifest.parked) + sum(map(len, self.manifest.lost.values()))

    def begin(self) -> None:
        """Take up what a run before has left: versions without a manifest are restored away, and keys of what was
        published and is not known here wait again (V4). A state that is too old is thrown away (V24), and one of
        another topic of the view (H241) or that may be wrong (H258). ConfigError where a table is older than its
        manifest."""
        self._restore()
        old = unsound(self.manifest) or too_old(self._at, self._input.retention_s, self._clock.now_ns())
        if old or of_another_topic(self._at, self._parts.topic_id):
            self._forget()
        keys, ends = self._output.behind(self._at.ends)
        self._topic_claim = claimed = self._output.claimed() or BEFORE_ALL
        names, swept = self._names(keys)
        kept = self._kept(names) if names else BatchReport()
        # A newer state has swept, and with it documents that it had parked. Under wider types all is made anew (H466).
        bound = self._parts.bound
        newest, anew = self._output.newest(), bound.other_than(self._at)
        due = ALL_DUE if self._at.built and (swept or anew) else self._due_with(names)
        before = published_before(self._at, claimed, newest, self._parts.above, anew=anew)
        at = replace(self._at, **bound._asdict(), topic_id=self._parts.topic_id)
        reached = replace(at, ends=ends, **before)
        below, waiting = self._waiting_with(kept)
        # All that this state has published was below that one's mark, so they are written again (H244).
        emptied = [PUBLISHED.table] if swept else []
        self._note(kept.changes, reached, emptied, due=due, below=below, waiting=waiting)
        self._asked.begin(reached.asked)

    def _waiting_with(self, kept: BatchReport) -> tuple[Fence, int]:
        """Up to where all is published, and how many keys wait, with those that are kept anew."""
        waiting = self.manifest.waiting + sum(int(count) for (count,) in kept.all("waiting"))
        return self.manifest.below if self.manifest.due else self._at.fence, waiting

    def _due_with(self, names: Sequence[str]) -> str:
        due = self.manifest.due
        return KEYS_DUE if names and self._at.built and due == NONE_DUE else due

    def _restore(self) -> None:
        """Take back versions of tables that no manifest names: of a batch that was not finished."""
        versions = self._tables.versions()
        if versions != self.manifest.versions:
            self.manifest = replace(self.manifest, versions=self._tables.restore(self.manifest.versions))

    def _clean(self) -> None:
        """Remove files that no version has which the manifest names, or the one before it (VACUUM never passes it)."""
        manifest = self.manifest
        if manifest.turn % CLEAN_EVERY == 0:
            keep = {n: sorted({v, manifest.older.get(n, v)}) for n, v in manifest.versions.items()}
            log.info("view_state_cleaned", extra={"files": self._tables.clean(keep, _KEPT_HOURS)})

    def _names(self, keys: Iterable[bytes]) -> tuple[list[str], bool]:
        """The names of keys in the view's topic, and whether a floor's key is among them."""
        found, swept = [], False
        for key in keys:
            try:
                found.append(key_name(key_row(self._plan, key)))
            except (ValueError, KeyError, TypeError):
                swept = True
        return list(dict.fromkeys(found)), swept

    def _kept(self, names: Sequence[str]) -> BatchReport:
        """Keys under which something is published that nobody here knows: a deletion may be due."""
        turn = self.manifest.turn + 1
        report = self._batches.keep(names, turn, self._files(), published=True, waits=self._at.built)
        self._batches.forget()
        return report

    def _forget(self) -> None:
        self._tables.commit((), list(self._tables.versions()))
        reached = self._at.anew()
        turn, versions = self.manifest.turn + 1, self._tables.versions()
        self.manifest = ViewManifest(reached=reached, buckets=self.manifest.buckets, turn=turn, versions=versions)
        self._tables.note(self.manifest.to_json())

    def _files(self, versions: Mapping[str, int] | None = None) -> Files:
        found = versions or self.manifest.versions
        return {name: self._tables.files(name, version) for name, version in found.items()}

    def _note(
        self, changes: Sequence[FileChange], reached: Reached, emptied: Sequence[str] = (), **changed: Any
    ) -> None:
        """Commit the tables' new versions, and then the manifest that names them."""
        self._tables.commit(changes, emptied)
        manifest = replace(
            self.manifest,
            reached=reached,
            turn=self.manifest.turn + 1,
            older=self.manifest.versions,
            versions=self._tables.versions(),
            **changed,
        )
        self._tables.note(manifest.to_json())
        self.manifest = manifest
        self._clean()

    def turn(self) -> Turn:
        """Publish what is due, or take up the next cut. LogError where a broker is away, StateAway where the state
        is."""
        try:
            with self._tables.guarded():
                self._restore()
                self._answer()
                claim = self._claimable(self.manifest, self._at.published)
                due = self.manifest.due or self.manifest.due_sweep(self._topic_claim)
                if self._may_publish() and (due or claim is not None):
                    return self._publish()
                return Turn(records=self._advance())
        finally:
            self._batches.forget()

    def _may_publish(self) -> bool:
        return in_order(self._at, self._parts.above) and not self._held and not self._unswept()

    def _unswept(self) -> list[str]:
        return unswept_tables(self._at, self._topics.values())

    def _advance(self) -> int:
        progress = self._input.progress()
        reached = self._at
        self._at_end = progress is not None and fence_of(progress) <= reached.fence
        if progress is None or self._at_end:
            if (awaited := self._watched.changed(reached)) is not None:
                self._note((), replace(reached, awaited=awaited))
                self._watched.tell(self._held, awaited, behind=self._claimed < reached.fence)
            return 0
        documents = self._input.documents()
        asked = self._take_up(documents)
        cut = CutReading(progress, reached, self._topics)
        letters, letters_end = self._input.letters(reached.letters)
        aside = [lost for letter in letters if (lost := self._letters.lost(letter)) is not None]
        applied, walked = BatchReport(), BatchReport()
        files = self._files()
        if cut.spans or cut.floors or aside or files[WAITING.table]:
            applied, walked = self._worked(cut, progress, files, aside)
        lacking = self._watched.lacking(documents, cut, reached)
        self._committed(cut, letters_end, (applied, walked), lacking, asked)
        log_cut(cut, not self._at.proven, self._input.progress_ms, self._unswept())
        self._watched.tell(self._held, self._at.awaited, behind=self._claimed < self._at.fence)
        return cut.records

    def _worked(
        self, cut: CutReading, progress: Progress, before: Files, aside: Sequence[RowChange]
    ) -> tuple[BatchReport, BatchReport]:
        """A cut's changes brought into the tables, which get new versions, and the keys that they concern."""
        reached, turn = self._at, self.manifest.turn + 1
        sure_ms = self._clock.now_ns() / 1e6 - self._input.compaction_lag_s * 1000 / 2
        flow = self._cuts.read(cut, progress.to_json(), sure_ms)
        whole = not reached.built
        batch = CutBatch(turn=turn, fence=cut.fence, below=reached.fence, floors=cut.floors, whole=whole)
        flows, applied = self._batches.apply(flow, batch, before, aside)
        self._tables.commit(applied.changes)
        walked = BatchReport()
        if not whole:
            walked = self._batches.keys(flows, turn, before, self._files(self._tables.versions()))
        read, written = applied.read_bytes + walked.read_bytes, applied.written_bytes + walked.written_bytes
        self.read_bytes = read
        log.info("view_batch", extra={"records": cut.records, "read_bytes": read, "written_bytes": written})
        return applied, walked

    def _take_up(self, documents: Mapping[bytes, bytes]) -> str:
        """Documents that somebody asks for once more wait. Returns the id that the cut's manifest notes."""
        asked = self._asked.new(documents, self._at.asked)
        if asked is None:
            return self._at.asked
        names = [key_name(row) for row in rows_asked(self._plan, asked.keys)]
        kept = self._kept(names) if names else BatchReport()
        below, waiting = self._waiting_with(kept)
        self._note(kept.changes, self._at, due=self._due_with(names), below=below, waiting=waiting)
        return asked.id

    def _answer(self) -> None:
        """Tell who asked that nothing of it waits any more."""
        asked = self._asked.taken(self._at.asked)
        if asked is not None and self._may_publish() and not self.manifest.due:
            parked, rows = self.manifest.parked, rows_asked(self._plan, asked.keys)
            names = {self._records.key(row).decode(): key_name(row) for row in rows}
            self._asked.answer({key: str(parked[name][0]) for key, name in names.items() if name in parked})

    def _committed(
        self,
        cut: CutReading,
        letters_end: int,
        work: tuple[BatchReport, BatchReport],
        lacking: tuple[Mapping[str, str], Mapping[str, str]],
        asked: str,
    ) -> None:
        """The manifest of a cut. ``work``: what was applied and walked. ``lacking``: tables that are held, and those
        that are awaited."""
        (applied, walked), reached = work, self._at
        now_ns = self._clock.now_ns()
        proven = cut_is_whole(self._input, cut, self._topics, now_ns)
        built = reached.built or proven
        lost = self.manifest.lost_after(applied.all("lost"))
        due, waiting = self.manifest.due, sum(int(count) for (count,) in walked.all("waiting"))
        below = self.manifest.below if due else shown_up_to(reached, self._topic_claim)
        if built and not reached.built:
            due, below = ALL_DUE, BEFORE_ALL
        elif waiting and due == NONE_DUE:
            due = KEYS_DUE
        now_ms = now_ns // 1_000_000
        noted = noted_after(cut, reached, proven=proven, letters=letters_end, lacking=lacking, now_ms=now_ms)
        after = replace(reached, asked=asked, **noted)
        self._note(walked.changes, after, due=due, waiting=self.manifest.waiting + waiting, below=below, lost=lost)

    def _claimable(self, manifest: ViewManifest, published: Fence) -> Fence | None:
        """The claim that may be made, once nothing is due. ``published``: the greatest fence of any document."""
        if self._at.awaited:
            return None
        return claim_of(manifest.claim, self._at.fence, published, self._claimed, self._topic_claim)

    def _publish(self) -> Turn:
        """Have the documents that are due made, publish them piece by piece, and note that they are."""
        manifest, fence, now_ns = self.manifest, self._at.fence, self._clock.now_ns()
        report = self._stage(fence, now_ns) if manifest.due else BatchReport()
        made, gone = (sum(int(pair[i]) for pair in report.all("made")) for i in (0, 1))
        staged = self._tables.files("documents", self._tables.versions()["documents"]) if manifest.due else {}
        paths = [self._tables.path("documents", file) for bucket in sorted(staged) for file in staged[bucket]]
        published = max(fence, self._at.published) if made + gone else self._at.published
        done = (name for (names,) in report.all("done") for name in names)
        after = manifest.published_but(done, report.all("parked"))
        claim = self._claimable(after, published)
        sweep = after.due_sweep(self._topic_claim)
        last = self._records.sweep(sweep, now_ns) if sweep is not None else []
        ends = self._at.ends
        for records, ending in staged_pieces(paths, self._parts.topic, self._piece, last):
            if records or (ending and claim is not None):
                ends = self._output.publish(records, claim if ending else None)
                crash_point("view_piece_published")
        crash_point("view_published")
        if claim is not None:
            self._claimed = self._topic_claim = claim
        reached = replace(self._at, ends=ends, published=published, sweep=None if sweep else self._at.sweep)
        if manifest.due or reached != self._at:
            changes = [one for one in report.changes if one.table == PUBLISHED.table]
            self._note(changes, reached, emptied=[PENDING.table], due=NONE_DUE, waiting=0, parked=after.parked)
        log_parked(dict(report.all("parked")))
        return Turn(0, made, gone)

    def _stage(self, fence: Fence, now_ns: int) -> BatchReport:
        """Documents in files, as a version of their table at the fence."""
        parts, manifest, files = self._parts, self.manifest, self._files()
        whole = manifest.due == ALL_DUE
        waiting = self._most_roots(files) if whole else manifest.waiting
        make = MakeDocuments(
            shipped=parts.shipped,
            turn=manifest.turn + 1,
            shares=shares_for(waiting, manifest.buckets),
            view=parts.view,
            topic=parts.topic,
            partitions=parts.partitions,
            name=parts.name,
            database=parts.database,
            largest=self._largest,
            above=self._at.numbered_above(fence),
            now_ns=now_ns,
            parked=frozenset(manifest.parked),
        )
        report = self._batches.stage(files, make, waiting, whole=whole)
        self._tables.commit([one for one in report.changes if one.table == "documents"], ["documents"])
        crash_point("view_staged")
        self.read_bytes += report.read_bytes
        made = sum(int(count) for count, _ in report.all("made"))
        said = {"documents": made, "read_bytes": report.read_bytes, "written_bytes": report.written_bytes}
        log.info("view_staged", extra=said)
        return report

    def _most_roots(self, files: Files) -> int:
        """About how many roots there are, by the rows of their files."""
        root = self._parts.shipped.parts().layout.root
        return self._tables.count(root.name, self.manifest.versions[root.name])
