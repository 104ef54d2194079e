"""The search index: a document per row, versioned by its position, behind an alias that shows the live ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import pyarrow as pa

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.crash_points import crash_point, declare
from cdc.record.schema import TableSchema
from sinks.contract.batch_plan import TableBatch, reason
from sinks.contract.port import Applied, CannotCarry, OpenSink, PlaceMissing, StoredRow, rows_at_once, stored_batch
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store import StoreSink
from sinks.contract.store_names import document_id
from sinks.contract.store_notes import NotedWatermarks
from sinks.contract.table_places import PLACE, Places, PlaceStep
from sinks.search.search_bulk import BulkWriter, Fates, Item
from sinks.search.search_client import Conflict, IndexBlocked, IndexGone, SearchClient
from sinks.search.search_documents import Documents, action, deleted, ending
from sinks.search.search_generations import path
from sinks.search.search_indexes import Indexes, SearchPlace, SearchPlaces, faults, write_alias
from sinks.search.search_mapping import DELETED, DELETED_AT, LIVE, POS

declare("search_page_swept")

_PAGE = 1_000
_LOOKUP = 250
_UNPACKED = 3
"""About how much larger a document is than what it takes on the server's disk."""
_TICK_S = 1.0
_PURGE_EVERY_S = 3600.0
_EVERY: dict[str, Any] = {"query": {"match_all": {}}}


def open_search(spec: SinkSpec, clock: Clock) -> OpenSink:
    """Connect. SinkError when the server does not answer or refuses the login."""
    client = _client(spec, clock)
    place = SearchPlace(client, spec)
    indexes = Indexes(client, spec, place)
    writer = BulkWriter(client, clock)
    session = _SearchSession(client, writer, spec, clock)
    discards = _SearchDiscards(client, indexes)
    tables = _SearchTables(
        client, indexes, writer, session, SearchPlaces(client, indexes, spec.prefix), discards, clock
    )
    # Documents that were written back by hand have versions above the log's, and would stay whatever is read on.
    places = Places(tables, reads_on=False)
    sink = StoreSink(tables, place.notes, session, places=places, shared=spec.follows, moved=indexes.look)
    reader = _SearchReader(client, indexes)
    return OpenSink(
        sink=sink,
        watermarks=NotedWatermarks(place.notes),
        reader=reader,
        places=places,
        current=indexes.current,
        discards=discards,
        sweep_late=sink.sweep_late,
    )


def _client(spec: SinkSpec, clock: Clock) -> SearchClient:
    user, authority = spec.optional("user"), spec.optional("ca_certs")
    return SearchClient(spec.text("url"), user, spec.secrets.get("password"), authority, clock)


class _SearchTables:
    def __init__(
        self,
        client: SearchClient,
        indexes: Indexes,
        writer: BulkWriter,
        session: _SearchSession,
        places: SearchPlaces,
        discards: _SearchDiscards,
        clock: Clock,
    ) -> None:
        self._client = client
        self._indexes = indexes
        self._writer = writer
        self._session = session
        self._places = places
        self._discards = discards
        self._clock = clock

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        with faults(schema):
            self._indexes.prepare(schema, older=older)
            self._session.wrote(self._index(schema), schema)

    def place(self, schema: TableSchema) -> bytes | None:
        with faults(schema):
            return self._places.read(schema)

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        self._places.put(steps)

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        index = self._indexes.existing(schema) if empty else None
        if index is not None:
            with faults(schema):
                self._client.refresh(f"/{path(index)}")
                self._client.call("POST", f"/{path(index)}/_delete_by_query", _EVERY, params={"refresh": "true"})
                self._discards.forget_deletes(index)

    def write(self, batch: TableBatch) -> Applied:
        with faults(batch.schema):
            return self._write(batch)

    def _write(self, batch: TableBatch) -> Applied:
        documents = self._indexes.documents(batch.schema)
        index = self._index(batch.schema)
        self._session.wrote(index, batch.schema)
        # A document is made when its body is: all of them at once would be as large as the batch.
        unfit: dict[int, str] = {}
        fates = self._writer.write(self._items(index, batch, documents, unfit))
        if fates.refused and documents.nested:
            fates = self._with_text(index, batch, documents, fates)
        refused = unfit | fates.refused
        deletes = batch.rows.count(None)
        gone = sum(1 for n in fates.stale | refused.keys() if batch.rows[n] is None)
        written = len(batch) - len(fates.stale) - len(refused)
        return Applied(
            applied=written - (deletes - gone),
            deleted=deletes - gone,
            stale=len(fates.stale),
            refused=batch.refused(refused),
        )

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        with faults(schema):
            return _look_up(self._client, self._indexes, schema, keys, by_version=False)

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        with faults(schema):
            self._remove_below(schema, floor)

    def _remove_below(self, schema: TableSchema, floor: str) -> None:
        index = self._index(schema)
        below = {"bool": {"filter": [{"range": {POS: {"lt": floor}}}], **LIVE["bool"]}}
        documents = self._indexes.documents(schema)
        while True:
            self._client.refresh(f"/{path(index)}")
            found = False
            for page in self._client.scroll(f"/{path(index)}", {"query": below}, _page(self._client, index)):
                found = True
                keys = [documents.stored(hit["_id"], hit["_source"]).key for hit in page]
                self._writer.write(self._deletes(index, keys, floor))
                crash_point("search_page_swept")
            if not found:
                return

    def _index(self, schema: TableSchema) -> str:
        index = self._indexes.existing(schema)
        if index is None:
            raise PlaceMissing.of(schema.table, "its index")
        return index

    def _items(self, index: str, batch: TableBatch, documents: Documents, unfit: dict[int, str]) -> Iterator[Item]:
        """A batch's documents. ``unfit`` gets what cannot be one, by number."""
        name = orjson.dumps(write_alias(index))
        now_ms = self._clock.now_ns() // 1_000_000
        for number, (key, pos) in enumerate(zip(batch.keys, batch.pos, strict=True)):
            try:
                body = _body(batch, documents, number)
            except ValueError as error:
                unfit[number] = reason(error)
                continue
            last = deleted(key, pos, now_ms) if body is None else body + ending(key, pos)
            yield Item(number, action(key, pos, name) + last)

    def _deletes(self, index: str, keys: Sequence[str], pos: str) -> Iterator[Item]:
        name = orjson.dumps(write_alias(index))
        now_ms = self._clock.now_ns() // 1_000_000
        for number, key in enumerate(keys):
            yield Item(number, action(key, pos, name) + deleted(key, pos, now_ms))

    def _with_text(self, index: str, batch: TableBatch, documents: Documents, fates: Fates) -> Fates:
        """Write refused documents once more, their json as text: some legal json no index takes (a term of over
        32 kB, arrays twenty deep, a name twice)."""
        name = orjson.dumps(write_alias(index))

        def again() -> Iterator[Item]:
            for number in fates.refused:
                body = _body(batch, documents, number)
                if body is not None:
                    key, pos = batch.keys[number], batch.pos[number]
                    yield Item(number, action(key, pos, name) + documents.with_text(body) + ending(key, pos))

        second = self._writer.write(again())
        return Fates(stale=fates.stale | second.stale, refused=second.refused)


def _body(batch: TableBatch, documents: Documents, number: int) -> bytes | None:
    """A row's document without its ending. None for a delete. ValueError where the row cannot be one."""
    whole, row = batch.filled.get(number), batch.rows[number]
    if whole is not None:
        return documents.filled(whole)
    return None if row is None else documents.body(row)


class _SearchSession:
    """Refreshes what was written, and forgets deletes that are old enough."""

    def __init__(self, client: SearchClient, writer: BulkWriter, spec: SinkSpec, clock: Clock) -> None:
        self._client = client
        self._writer = writer
        self._clock = clock
        self._remember_ms = int(spec.replay_window_s * 1000)
        self._every_s = min(_PURGE_EVERY_S, spec.replay_window_s)
        self._shared = spec.parallel
        self._dirty: set[str] = set()
        self._tables: dict[str, TableSchema] = {}
        self._known: dict[str, float] = {}

    def wrote(self, index: str, schema: TableSchema) -> None:
        self._dirty.add(index)
        self._tables[index] = schema
        self._known.setdefault(index, self._clock.monotonic())

    def show(self) -> None:
        # This store refreshes the documents that others wrote through its spec, too.
        written = self._known.keys() if self._shared else self._dirty
        if written:
            self._refresh(sorted(written))
            self._dirty.clear()
        now = self._clock.monotonic()
        for index, last in self._known.items():
            if now - last >= self._every_s:
                self._known[index] = now
                self._purge(index)

    def close(self) -> None:
        self._writer.close()
        self._client.close()

    def _refresh(self, indexes: list[str]) -> None:
        try:
            self._client.refresh(f"/{','.join(map(path, indexes))}")
        except (IndexGone, Conflict):
            # One of them was removed or closed: which?
            for index in indexes:
                with self._forgotten(index), faults(self._tables[index]):
                    self._client.refresh(f"/{path(index)}")

    @contextmanager
    def _forgotten(self, index: str) -> Iterator[None]:
        """An index that cannot be shown is none of what was written any more."""
        try:
            yield
        except (PlaceMissing, CannotCarry):
            self._dirty.discard(index)
            del self._known[index]
            raise

    def _purge(self, index: str) -> None:
        before = self._clock.now_ns() // 1_000_000 - self._remember_ms
        old = {"bool": {"filter": [{"term": {DELETED: True}}, {"range": {DELETED_AT: {"lt": before}}}]}}
        params = {"conflicts": "proceed", "refresh": "true"}
        # One that takes no writes keeps them for longer.
        with suppress(IndexGone, IndexBlocked, Conflict):
            self._client.call("POST", f"/{path(index)}/_delete_by_query", {"query": old}, params=params)


class _SearchReader:
    def __init__(self, client: SearchClient, indexes: Indexes) -> None:
        self._client = client
        self._indexes = indexes

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        index = self._indexes.existing(schema)
        if index is None:
            return
        stored = self._indexes.documents(schema).stored
        with faults(schema):
            rows = {"query": {"bool": {"must_not": {"ids": {"values": [PLACE]}}}}, "version": True}
            for page in self._client.scroll(f"/{path(index)}", rows, _page(self._client, index)):
                yield stored_batch([stored(hit["_id"], hit["_source"], hit["_version"]) for hit in page])

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return self.get_many(schema, [key]).get(key)

    def get_many(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        with faults(schema):
            return _look_up(self._client, self._indexes, schema, keys)

    def close(self) -> None:
        """The sink closes what both use."""


class _SearchDiscards:
    """The server remembers a deleted document's version for ``index.gc_deletes``, and until then takes none below."""

    def __init__(self, client: SearchClient, indexes: Indexes) -> None:
        self._client = client
        self._indexes = indexes

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:
        with faults(schema):
            index = self._indexes.existing(schema)
            # A document without a version of ours is below every row: it is written over.
            some = [key for key, pos in versions.items() if pos]
            if index is None or not some:
                return
            gone = False
            for start in range(0, len(some), _LOOKUP):
                gone |= self._delete(index, schema, {key: versions[key] for key in some[start : start + _LOOKUP]})
            if gone:
                self.forget_deletes(index)

    def _delete(self, index: str, schema: TableSchema, versions: Mapping[str, str]) -> bool:
        documents, gone = self._indexes.documents(schema), False
        ids = [document_id(key) for key in versions]
        for hit in self._client.documents(f"/{path(index)}", ids):
            if not hit.get("found"):
                continue
            row = documents.stored(hit["_id"], hit["_source"], hit["_version"])
            if versions.get(row.key) == row.pos:
                seen = {"if_seq_no": hit["_seq_no"], "if_primary_term": hit["_primary_term"]}
                self._client.call("DELETE", f"/{path(index)}/_doc/{path(hit['_id'])}", params=seen, absent={})
                gone = True
        return gone

    def forget_deletes(self, index: str) -> None:
        """Have the server forget what was deleted, now."""
        setting = "index.gc_deletes"
        self._client.call("PUT", f"/{path(index)}/_settings", {setting: "0s"})
        try:
            # It does so at a refresh, for what is older than its own coarse clock's last tick (0.2 s).
            SYSTEM_CLOCK.sleep(_TICK_S)
            self._client.refresh(f"/{path(index)}")
        finally:
            self._client.call("PUT", f"/{path(index)}/_settings", {setting: None})


def _page(client: SearchClient, index: str) -> int:
    """How many documents to read at once: 5,000 of 100 kB take the memory that a small server has."""
    stats = client.call("GET", f"/{path(index)}/_stats/docs,store")["_all"]["primaries"]
    # Without a shard that answers there is neither: the search that comes next says so.
    size, count = stats.get("store", {}).get("size_in_bytes", 0), stats.get("docs", {}).get("count", 0)
    return rows_at_once(_UNPACKED * size / max(1, count), _PAGE)


def _look_up(
    client: SearchClient, indexes: Indexes, schema: TableSchema, keys: Sequence[str], *, by_version: bool = True
) -> dict[str, StoredRow]:
    """Documents by key, also those that do not show yet. ``by_version``: one without a position has its version's."""
    index = indexes.existing(schema)
    found: dict[str, StoredRow] = {}
    if index is None:
        return found
    documents = indexes.documents(schema)
    for start in range(0, len(keys), _LOOKUP):
        ids = [document_id(key) for key in keys[start : start + _LOOKUP]]
        for hit in client.documents(f"/{path(index)}", ids):
            if hit.get("found") and hit["_id"] != PLACE:
                row = documents.stored(hit["_id"], hit["_source"], hit["_version"] if by_version else 0)
                found[row.key] = row
    return found
