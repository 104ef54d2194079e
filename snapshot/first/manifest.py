"""The memory of the first snapshot in ``<name>.state``: the chunks that are done and those that are left.

The ledger is the manifest beside the topic that holds it: nothing counts before the brokers have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from cdc.record.ports import CompactedTopic
from cdc.record.progress import EpochsState
from cdc.record.state import (
    ChunkState,
    Document,
    RequestState,
    SlotIntent,
    SlotState,
    SnapshotState,
    SnapshotTableState,
    TopicsState,
    what_of,
)
from cdc.record.topic_names import TableName
from snapshot.source.planned_tables import (
    Chunk,
    InspectedTable,
    Inspection,
    LeafForm,
    TableForm,
    form_change,
    table_chunks,
)

Records = list[tuple[bytes, bytes | None]]

RUNNING = "running"
COMPLETE = "complete"
DONE = "done"


def as_records(*documents: Document) -> Records:
    """Documents as records of the state topic."""
    return [(document.key(), document.to_json()) for document in documents]


class Manifest:
    """The snapshot's memory. ``topics``, ``intent``, ``slot``, ``head``: None while they have not been written."""

    def __init__(self, records: Mapping[bytes, bytes] | None = None) -> None:
        documents = records or {}
        self.topics = TopicsState.find(documents)
        self.epochs = EpochsState.find(documents) or EpochsState()
        self.intent = SlotIntent.find(documents)
        self.slot = SlotState.find(documents)
        self.head = SnapshotState.find(documents)
        self._order = self.head.tables if self.head else []
        self._tables: dict[str, SnapshotTableState] = {}
        self._chunks: dict[str, dict[int, ChunkState]] = {}
        for key, value in documents.items():
            what = what_of(key)
            if what == SnapshotTableState.WHAT:
                self._keep_table(SnapshotTableState.from_json(value))
            elif what == ChunkState.WHAT:
                self._keep_chunk(ChunkState.from_json(value))

    @property
    def complete(self) -> bool:
        """Whether the first snapshot is done."""
        return self.head is not None and self.head.state == COMPLETE

    def tables(self) -> list[str]:
        """The tables that have a whole plan, gone ones included, in the head's order where there is one."""
        order = {table: place for place, table in enumerate(self._order)}
        whole = [table for table in self._tables if self._whole(table)]
        return sorted(whole, key=lambda table: (order.get(table, len(order)), table))

    def table(self, table: str) -> SnapshotTableState | None:
        """The plan of a table. None when it has none, or when writing it was cut short."""
        return self._tables[table] if self._whole(table) else None

    def form(self, table: str) -> TableForm | None:
        """A table as it was when it was planned. Sizes unknown. None as for :meth:`table`."""
        found = self.table(table)
        if found is None:
            return None
        leaves = tuple(
            LeafForm(
                oid=leaf["oid"],
                table=TableName(leaf["schema"], leaf["name"]),
                filenode=leaf["filenode"],
                heap_blocks=0,
                size_bytes=0,
            )
            for leaf in found.leaves
        )
        name = TableName(found.schema, found.name)
        return TableForm(table=name, topic=found.topic, oid=found.oid, version=found.version, leaves=leaves)

    def chunks(self, table: str) -> list[ChunkState]:
        """The chunks of a table's present plan, by number. None while the plan is not whole."""
        return self._present(table) if self._whole(table) else []

    def chunk(self, table: str, number: int) -> ChunkState:
        """A chunk's newest state. KeyError for one that was never planned."""
        return self._chunks[table][number]

    def left(self) -> list[ChunkState]:
        """The chunks that are not done, in the order in which they are to be read."""
        return [
            chunk
            for table in self.tables()
            if not self._tables[table].gone
            for chunk in self.chunks(table)
            if chunk.state != DONE
        ]

    def plan(self, form: TableForm, ranges: Iterable[Chunk]) -> Records:
        """Cut a table anew: every chunk of the generation before is void."""
        table = str(form.table)
        former = self._tables.get(table)
        stale = set(self._chunks.get(table, {}).values())
        generation = max([former.generation if former else 0, *(c.generation for c in stale)]) + 1
        chunks = [
            ChunkState(
                table=table,
                leaf=str(cut.leaf.table),
                number=number,
                filenode=cut.leaf.filenode,
                low=cut.low,
                high=cut.high,
                generation=generation,
            )
            for number, cut in enumerate(ranges, start=1)
            if cut.leaf is not None
        ]
        state = SnapshotTableState(
            table=table,
            schema=form.table.schema,
            name=form.table.table,
            topic=form.topic,
            oid=form.oid,
            version=form.version,
            generation=generation,
            chunks=len(chunks),
            leaves=[
                {"oid": leaf.oid, "schema": leaf.table.schema, "name": leaf.table.table, "filenode": leaf.filenode}
                for leaf in form.leaves
            ],
            **({} if form.marks is None else asdict(form.marks)),
        )
        written = {chunk.key() for chunk in chunks}
        removed: Records = [(chunk.key(), None) for chunk in sorted(stale, key=_number) if chunk.key() not in written]
        self._chunks[table] = {chunk.number: chunk for chunk in chunks}
        self._tables[table] = state
        return [*as_records(*chunks, state), *removed]

    def give_up(self, table: str) -> Records:
        """Note that a table is gone from the source: nothing is left of it to read."""
        state = replace(self._tables[table], gone=True)
        self._tables[table] = state
        return as_records(state)

    def finish(self, read: ChunkState) -> Records:
        """Note that every record of a chunk is stored by the brokers. Nothing if its plan was replaced meanwhile."""
        present = self._chunks.get(read.table, {}).get(read.number)
        if present is None or present.generation != read.generation or present.state == DONE:
            return []
        done = replace(read, state=DONE)
        self._chunks[read.table][read.number] = done
        return as_records(done)

    def begin(self, intent: SlotIntent) -> Records:
        """Note that the slot is about to be made."""
        self.intent = intent
        return as_records(intent)

    def withdraw(self) -> Records:
        """Note that no slot came of the intent: one of its name that appears now is somebody else's."""
        intent, self.intent = self.intent, None
        return [(intent.key(), None)] if intent is not None else []

    def open(self, slot: SlotState, tables: Iterable[str], *, state: str = RUNNING) -> Records:
        """Note that the slot is there, with it the position of every row, and the order of reading."""
        self.slot = slot
        self._order = list(tables)
        return [*as_records(slot), *self.cut(slot.consistent_point, state=state)]

    def cut(self, lsn: int, *, state: str = RUNNING) -> Records:
        """Note a cut: until the stream has passed ``lsn``, the stores are still being filled."""
        slot = self._slot()
        last = max(lsn, slot.consistent_point, self.head.last_cut_lsn if self.head else 0)
        self.head = SnapshotState(
            epoch=slot.epoch,
            state=state,
            consistent_point=slot.consistent_point,
            last_cut_lsn=last,
            tables=self._order or sorted(self._tables),
            **self._sums(),
        )
        return as_records(self.head)

    def close(self) -> Records:
        """Note that every chunk is done: capture may stream. ValueError while one is not."""
        if self.left():
            raise ValueError(f"{len(self.left())} chunks are left")
        return self.cut(0, state=COMPLETE)

    def _slot(self) -> SlotState:
        if self.slot is None:
            raise ValueError("there is no slot yet")
        return self.slot

    def _sums(self) -> dict[str, int]:
        done = [chunk for table in self.tables() for chunk in self.chunks(table) if chunk.state == DONE]
        return {"rows": sum(c.rows for c in done), "size_bytes": sum(c.size_bytes for c in done)}

    def _present(self, table: str) -> list[ChunkState]:
        generation = self._tables[table].generation
        return sorted((c for c in self._chunks.get(table, {}).values() if c.generation == generation), key=_number)

    def _whole(self, table: str) -> bool:
        return table in self._tables and len(self._present(table)) == self._tables[table].chunks

    def _keep_table(self, state: SnapshotTableState) -> None:
        self._tables[state.table] = state

    def _keep_chunk(self, chunk: ChunkState) -> None:
        self._chunks.setdefault(chunk.table, {})[chunk.number] = chunk


def request(table: str, reason: str, after_lsn: int) -> RequestState:
    """Ask for a table to be read again once the stream has passed ``after_lsn``. Asking twice is asking once."""
    return RequestState(
        id=f"snapshot:{table}", table=table, after_lsn=after_lsn, reason=f"{table} {reason}", serial=after_lsn
    )


def _number(chunk: ChunkState) -> int:
    return chunk.number


_LEAST_BYTES = 4 * 1024**2
_ROUNDS = 8
"""Chunks per worker at least, so that all end at about the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The figures that decide how large a chunk is. ``most_bytes``: ``[snapshot] chunk_bytes``."""

    workers: int
    most_bytes: int
    server_version: int

    def chunk_bytes(self, total_bytes: int) -> int:
        """``most_bytes``, or less where few chunks would leave workers idle at the end."""
        return max(min(self.most_bytes, total_bytes // (self.workers * _ROUNDS)), min(self.most_bytes, _LEAST_BYTES))


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
