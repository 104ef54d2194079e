"""The catalog watch: looks now and then, and requests a reading of tables that changed without an event."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cdc.capture.transaction_visibility import Gate
from cdc.process.clock import Clock
from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from cdc.record.server_facts import Sent
from cdc.record.state import FormState, RequestState, SnapshotTableState, find_all, requests_of
from cdc.record.topic_names import TableName
from snapshot.later.watch_rules import RereadReason, form_of_plan, gone_forms, need
from snapshot.later.window_read import visible_now
from snapshot.source.inspection import catalog_marks, leaf_rows, sizes
from snapshot.source.ports import Captured, LaterEdges, Session
from snapshot.source.read_transaction import SQL, insert_lsn

log = logging.getLogger(__name__)

Records = list[tuple[bytes, bytes | None]]
_SEE_S = 1.0
_READS = 3
"""How often the columns are read, until no file was changed meanwhile."""


@dataclass(frozen=True, slots=True)
class _Read:
    """By oid: a table's columns, the transactions that last changed them, its file, and the rows of its leaves."""

    columns: dict[int, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    born: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    filenodes: dict[int, int] = field(default_factory=dict)
    leaves: dict[int, Any] = field(default_factory=dict)


class CatalogWatch:
    """One session's watch. Nothing it finds is lost with it: what was seen last stands in the state topic."""

    def __init__(self, edges: LaterEdges, session: Session, gate: Gate, clock: Clock) -> None:
        self._edges = edges
        self._session = session
        self._gate = gate
        self._clock = clock
        self._every_s = edges.settings.snapshot.watch.total_seconds()
        # At rest it says what the publication sends when a request needs to know, and asks for nothing by itself.
        self._resting = not self._every_s
        self._look_s = 0.0
        self._see_s = 0.0
        self._fingerprint = ("", 0)
        self._sent: Mapping[str, Sent] = {}
        self._truncates = False
        self._barriers: dict[str, frozenset[int]] = {}
        self._told: set[str] = set()
        self._streamed: Mapping[str, Mapping[str, int]] = {}

    def noted(self) -> None:
        """Note that the brokers have the findings of the last look."""
        if self._streamed:
            compared, self._streamed = self._streamed, {}
            self._edges.topics.settle_partitions(compared)

    def published(self, table: str) -> bool:
        """Whether the publication sends the table, as last looked."""
        return table in self._sent

    def barrier(self, table: str) -> frozenset[int]:
        """Transactions that may hold changes of the table from before it came into the publication."""
        return self._barriers.get(table, frozenset())

    def look(self, documents: Mapping[bytes, bytes], *, now: bool = False) -> Records:
        """Look if it is time, or ``now``. Returns the records for the state topic.

        ``documents``: the state topic's records.
        """
        now_s = self._clock.monotonic()
        if now_s >= self._see_s:
            self._see_s = now_s + _SEE_S
            self._gate.saw(visible_now(self._session))
        if not now and (self._resting or now_s < self._look_s):
            return []
        self._look_s = now_s + self._every_s
        publication = self._edges.settings.publication
        row = SQL.one(self._session, "fingerprint", publication=publication)
        # A shape that the stream announces may be one that no look sees.
        fingerprint = (row[0], self._edges.shapes.size)
        if fingerprint == self._fingerprint and not self._edges.topics.new_partitions:
            return []
        found = self._compare(documents)
        # Only now: what was not compared to its end has to be compared again.
        self._fingerprint = fingerprint
        return found

    def _compare(self, documents: Mapping[bytes, bytes]) -> Records:
        captured = list(self._edges.source.tables(self._session))
        self._read_publication()
        self._add(captured)
        known = [table for table in captured if self._edges.topics.topic(table.table) is not None]
        if self._resting:
            for table in known:
                self._bar(str(table.table))
            return []
        forms = {form.table: form for form in find_all(documents, FormState)}
        plans = {plan.table: plan for plan in find_all(documents, SnapshotTableState)}
        records: Records = []
        streamed = self._streamed = self._edges.topics.new_partitions
        shapes = self._shapes()
        for form in self._forms(known):
            announced = shapes[form.table]
            now = replace(form, version=announced[-1].version if announced else 0)
            before = forms.get(now.table) or self._left_by(plans.get(now.table))
            if before is None and now.publication:
                # Whether it was published for long is not known.
                self._bar(now.table)
            found = self._need(before, now, streamed.get(now.table, {}), announced) if before is not None else None
            if found is not None:
                if found.unsent:
                    self._bar(now.table)
                records += self._ask(now.table, found, documents)
            if now != forms.get(now.table):
                records.append((now.key(), now.to_json()))
        gone = gone_forms(forms, {str(table.table) for table in captured})
        return records + [(form.key(), form.to_json()) for form in gone]

    def _shapes(self) -> Mapping[str, Sequence[TableSchema]]:
        """Table -> every version of its shape, older ones first."""
        found: dict[str, list[TableSchema]] = defaultdict(list)
        for shape in self._edges.shapes.versions():
            found[str(shape.table)].append(shape)
        return found

    def _need(
        self, before: FormState, now: FormState, streamed: Mapping[str, int], shapes: Sequence[TableSchema]
    ) -> RereadReason | None:
        empty = self._empty(before, now)
        announced = [shape for shape in shapes if before.version and shape.version > before.version]
        found = need(before, now, empty, streamed, announced)
        if found is None or not found.republished or self._edges.settings.snapshot.reread_republished:
            return found
        why = f"{now.table} {found.reason}; [snapshot] reread_republished leaves it as it is"
        log.warning("reread_declined", extra={"table": now.table, "why": why})
        # Only that is declined: its file and its partitions may be others as well.
        return need(replace(before, entries=now.entries), now, empty, streamed, announced)

    def _read_publication(self) -> None:
        found = self._edges.source.facts(self._session)[2]
        self._sent = {str(table): sent for table, sent in found.sent.items()} if found is not None else {}
        # Whether the stream brings a TRUNCATE.
        self._truncates = found is not None and "truncate" in found.operations

    def _add(self, captured: Sequence[Captured]) -> None:
        """Tables that the settings take and the publication sends, and that have no topic yet."""
        topics = self._edges.topics
        new = [table for table in captured if topics.topic(table.table) is None]
        if new:
            topics.refresh()
        for table in new:
            if topics.topic(table.table) is not None:
                continue
            if str(table.table) not in self._sent:
                self._tell("table_not_published", f"{table.table} is to be captured: cdc init adds it")
                continue
            try:
                topics.add(table, "came after the slot")
            except ConfigError as error:
                self._tell("table_not_captured", error.message)

    def _bar(self, table: str) -> None:
        self._barriers[table] = self._edges.source.barrier(self._session).running

    def _left_by(self, plan: SnapshotTableState | None) -> FormState | None:
        """The table as the first snapshot left it."""
        if plan is None or plan.gone:
            return None
        try:
            shape = self._edges.shapes.get(TableName(plan.schema, plan.name), plan.version)
        except KeyError:
            return None
        return form_of_plan(plan, shape)

    def _empty(self, before: FormState, now: FormState) -> list[int]:
        """The new leaves that hold nothing. One that is locked, so that its size is not known, may."""
        known = {leaf[0] for leaf in before.leaves}
        new = [leaf[0] for leaf in now.leaves if leaf[0] not in known]
        return [oid for oid, size in sizes(self._session, new).items() if not size.heap_blocks] if new else []

    def _forms(self, captured: Sequence[Captured]) -> list[FormState]:
        """Each table as it is now."""
        for _ in range(_READS):
            read = self._read_columns(captured)
            if all(read.filenodes.get(oid, leaf.filenode) == leaf.filenode for oid, leaf in read.leaves.items()):
                break  # else a file was changed between two of the queries, and its contents are not known
        marks = catalog_marks(self._session, captured, self._sent)
        found = []
        for table in captured:
            own = [read.leaves[leaf.oid] for leaf in table.leaves if leaf.oid in read.leaves]
            # The columns describe the file only if they were read with it.
            files = [(leaf.oid, leaf.filenode) for leaf in own]
            sent = self._sent.get(str(table.table))
            # A table that is listed by itself cannot be made unlogged for a while. Any other can.
            listed = sent is not None and sent.listed
            same = self._truncates and listed and files == [(table.oid, read.filenodes.get(table.oid))]
            form = FormState(
                table=str(table.table),
                oid=table.oid,
                columns=read.columns[table.oid],
                leaves=[[leaf.oid, leaf.schema, leaf.name, leaf.filenode] for leaf in own],
                born=read.born[table.oid] if same else {},
                **asdict(marks[table.oid]),
            )
            found.append(form)
        return found

    def _read_columns(self, captured: Sequence[Captured]) -> _Read:
        read = _Read()
        for row in self._session.execute(SQL.text("columns"), {"oids": [table.oid for table in captured]}).fetchall():
            read.columns[row[0]].append([row[1], row[2], row[3], row[4], row[5]])
            read.born[row[0]][str(row[1])] = row[6]
            read.filenodes[row[0]] = row[7]
        leaves = leaf_rows(self._session, [leaf.oid for table in captured for leaf in table.leaves])
        read.leaves.update({row.oid: row for row in leaves})
        return read

    def _ask(self, table: str, found: RereadReason, documents: Mapping[bytes, bytes]) -> Records:
        name = f"snapshot:{table}" + ("" if found.leaves is None else ":partitions")
        asked = [request for request in requests_of(documents) if request.id == name]
        if found.added and asked:
            return []
        leaves = found.leaves
        if leaves is not None and asked and asked[0].leaves is not None:
            leaves = tuple(sorted({*leaves, *asked[0].leaves}))
        request = RequestState(
            id=name,
            table=table,
            after_lsn=insert_lsn(self._session),
            reason=f"{table} {found.reason}",
            state="paused" if asked and asked[0].state == "paused" else "asked",
            serial=self._clock.now_ns(),
            leaves=None if leaves is None else list(leaves),
            first=found.added or any(one.first for one in asked),
        )
        log.info("reread_asked", extra={"table": table, "why": found.reason})
        return [(request.key(), request.to_json())]

    def _tell(self, event: str, why: str) -> None:
        if why not in self._told:
            self._told.add(why)
            log.warning(event, extra={"why": why})
