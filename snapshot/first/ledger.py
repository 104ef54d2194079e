"""The manifest beside the topic that holds it: nothing counts before the brokers have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.record.ports import CompactedTopic
from cdc.record.state import ChunkState, SlotIntent, SlotState
from snapshot.first.manifest import COMPLETE, RUNNING, Manifest, Records, Sizing, as_records, request
from snapshot.source.chunks import table_chunks
from snapshot.source.forms import InspectedTable, Inspection, form_change


class Ledger:
    """Changes to the manifest, each written at once. ``requests``: sentences on tables to be read again."""

    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self.manifest = Manifest()
        self.requests: list[str] = []

    def read(self) -> Manifest:
        """Read the present content of the topic."""
        self.manifest = Manifest(self._topic.read())
        return self.manifest

    def plan(self, intent: SlotIntent, inspection: Inspection | None, sizing: Sizing) -> None:
        """Note the plan (none without rows) and that the slot is about to be made."""
        records = self.manifest.begin(intent)
        tables = inspection.tables if inspection else {}
        for one in tables.values():
            records += self._cut_table(one, sizing, tables)
        self._write(records)

    def began(self, intent: SlotIntent) -> None:
        """Note where the slot that is about to get its name begins."""
        self._write(self.manifest.begin(intent))

    def withdraw(self) -> None:
        """Note that the slot was refused and is not there."""
        self._write(self.manifest.withdraw())

    def open(self, slot: SlotState, tables: Iterable[str], *, rows: bool) -> None:
        """Note the slot. Without ``rows`` that is the whole snapshot."""
        self._write(self.manifest.open(slot, tables, state=RUNNING if rows else COMPLETE))

    def changed(self, inspection: Inspection) -> list[str]:
        """Tables that are not as they were planned."""
        forms = {table: self.manifest.form(table) for table in inspection.tables}
        return [table for table, form in forms.items() if form and form_change(form, inspection.tables[table].form)]

    def cut(self, lsn: int, inspection: Inspection, sizing: Sizing, *, read_too: bool = False) -> list[str]:
        """Note a new cut. Tables that changed since they were planned are planned anew. Returns sentences about them.

        Of the changed ones just those that are not read to their end, unless ``read_too``. A table that changed without
        an event (a rewrite, other partitions, other columns) also has to be read again once the stream has passed
        ``lsn``: events from before it would overwrite what is read now.
        """
        tables = inspection.tables
        records = [*self.manifest.cut(lsn), *self._ask_for(inspection, lsn)]
        said = []
        left = {chunk.table for chunk in self.manifest.left()}
        planned = self.manifest.tables()
        for table in planned:
            state = self.manifest.table(table)
            if table not in tables and state is not None and not state.gone:
                said.append(f"{table} is not captured any more: what was copied of it stays in its topic")
                records += self.manifest.give_up(table)
        for table, now in tables.items():
            form = self.manifest.form(table)
            change = form_change(form, now.form) if form is not None else None
            if form is None or (change is not None and (read_too or table in left)):
                said.append(f"{table} {change or 'has no whole plan'}: it is read from its beginning")
                records += self._cut_table(now, sizing, tables)
        self._write(records)
        return said

    def finish(self, chunks: Iterable[ChunkState]) -> None:
        """Note chunks that the brokers hold whole."""
        self._write([record for chunk in chunks for record in self.manifest.finish(chunk)])

    def complete(self, lsn: int, inspection: Inspection) -> None:
        """Note that all is done. Tables that changed after they were read have to be read again behind ``lsn``.

        ValueError while something is left.
        """
        self._write([*self._ask_for(inspection, lsn), *self.manifest.close()])

    def _ask_for(self, inspection: Inspection, lsn: int) -> Records:
        records: Records = []
        for table, now in inspection.tables.items():
            form = self.manifest.form(table)
            change = form_change(form, now.form) if form is not None else None
            if change is not None:
                records += self._ask(table, change, lsn)
        for table in inspection.late:
            records += self._ask(table, "came after the slot", lsn)
        return records

    def _cut_table(
        self, inspected: InspectedTable, sizing: Sizing, everything: Mapping[str, InspectedTable]
    ) -> Records:
        chunk_bytes = sizing.chunk_bytes(sum(one.form.size_bytes for one in everything.values()))
        ranges = table_chunks(inspected.form, chunk_bytes=chunk_bytes, server_version=sizing.server_version)
        return self.manifest.plan(inspected.form, ranges)

    def _ask(self, table: str, reason: str, lsn: int) -> Records:
        asked = request(table, reason, lsn)
        if asked.reason not in self.requests:
            self.requests.append(asked.reason)
        return as_records(asked)

    def _write(self, records: Records) -> None:
        if records:
            self._topic.write(records)
