"""The search index: a document per row, versioned by its position, behind an alias that shows the live ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import ConfigError
from cdc.schema import TableSchema
from sinks.generations import FIRST, Place
from sinks.names import document_id, index_alias, index_prefix
from sinks.notes import NotedWatermarks
from sinks.plan import Converted, TableBatch
from sinks.port import Applied, OpenSink, StoredRow, stored_batch
from sinks.registry import SinkSpec
from sinks.search_bulk import BulkWriter, Fates, Item
from sinks.search_client import Conflict, SearchClient
from sinks.search_documents import Documents, action, deleted, ending
from sinks.search_mapping import DELETED, DELETED_AT, LIVE, POS, changes, index_settings, mapping
from sinks.store import StoreSink

declare("search_index_made", "search_page_swept")

_PAGE = 5_000
_LOOKUP = 1_000
_PURGE_EVERY_S = 3600.0


def open_search(spec: SinkSpec, clock: Clock) -> OpenSink:
    """Connect. SinkError when the server does not answer or refuses the login."""
    user, authority = spec.optional("user"), spec.optional("ca_certs")
    client = SearchClient(spec.text("url"), user, spec.secrets.get("password"), authority, clock)
    place = SearchPlace(client, spec)
    indexes = _Indexes(client, spec, place)
    writer = BulkWriter(client, clock)
    session = _SearchSession(client, writer, spec, clock)
    tables = _SearchTables(client, indexes, writer, session, clock)
    sink = StoreSink(tables, place.notes, session, shared=spec.follows, moved=indexes.look)
    reader = _SearchReader(client, indexes)
    return OpenSink(sink=sink, watermarks=NotedWatermarks(place.notes), reader=reader, current=place.current)


class SearchPlace(Place):
    """Which generation's indexes are written and read."""

    def __init__(self, client: SearchClient, spec: SinkSpec) -> None:
        base = SearchNotes(client, lambda: notes_index(spec.prefix, FIRST))
        given = spec.options.get("generation")
        super().__init__(base, given, shared=spec.follows)
        self.notes = SearchNotes(client, lambda: notes_index(spec.prefix, self.number))
        self._by_alias = given is None

    @property
    def generation(self) -> int | None:
        """None: that of the index which the alias names."""
        return None if self._by_alias and self.number == FIRST else self.number


def notes_index(prefix: str, number: int) -> str:
    """The index of a generation's watermark and floors."""
    base = f"{index_prefix(prefix)}-_watermark"
    return base if number == FIRST else f"{base}-{number}"


class _Indexes:
    """Which index holds a table, and how its documents are made."""

    def __init__(self, client: SearchClient, spec: SinkSpec, place: SearchPlace) -> None:
        self._client = client
        self._place = place
        self._prefix = spec.prefix
        self._shards = int(spec.number("shards", 1))
        self._replicas = int(spec.number("replicas", 0))
        self._mapping = str(spec.options.get("json_mapping") or "flat_object")
        self._found: dict[str, str] = {}

    def look(self) -> bool:
        """Whether another generation is in use since; the indexes are looked up anew then."""
        moved = self._place.look()
        if moved:
            self._found.clear()
        return moved

    @property
    def json_type(self) -> str:
        """What json is mapped as on this server."""
        return "flattened" if self._mapping == "flat_object" and not self._client.is_opensearch else self._mapping

    def documents(self, schema: TableSchema) -> Documents:
        return Documents(schema, as_text=self._mapping == "text")

    def existing(self, schema: TableSchema) -> str | None:
        """The index of a table, if there is one."""
        alias = index_alias(self._prefix, schema.table)
        if alias not in self._found:
            if self._place.generation is not None:
                name = f"{alias}-{self._place.generation}"
                there = [name] if self._client.call("GET", f"/{_path(name)}", absent={}) else []
            else:
                there = list(self._client.call("GET", f"/_alias/{_path(alias)}", absent={}))
            if len(there) > 1:
                raise ConfigError(f"the alias {alias} names several indexes", hint="let it name the newest one alone")
            if not there:
                return None
            self._found[alias] = there[0]
        return self._found[alias]

    def prepare(self, schema: TableSchema, *, older: bool) -> bool:
        """Make the index, or add the fields it lacks. True when it is new."""
        index = self.existing(schema)
        if index is not None:
            self._add_fields(index, schema, older=older)
            return False
        alias = index_alias(self._prefix, schema.table)
        name = f"{alias}-{self._place.number}"
        aliases: dict[str, Any] = {write_alias(name): {}}
        if not self._client.call("GET", f"/_alias/{_path(alias)}", absent={}):
            aliases[alias] = {"filter": LIVE}
        body = {
            "settings": {"index": index_settings(schema, self._shards, self._replicas)},
            "mappings": mapping(schema, self.json_type),
            "aliases": aliases,
        }
        try:
            self._client.call("PUT", f"/{_path(name)}", body)
        except Conflict as conflict:
            if "resource_already_exists" not in conflict.message:
                raise
            # Another process of this sink was faster.
            self._add_fields(name, schema, older=older)
            return False
        crash_point("search_index_made")
        return True

    def _add_fields(self, index: str, schema: TableSchema, *, older: bool) -> None:
        """Fields of another shape. CannotCarry where the newest one indexes otherwise: what is indexed stays so."""
        held = self._client.call("GET", f"/{_path(index)}/_mapping")
        known = next(iter(held.values()))["mappings"].get("properties", {})
        new = changes(schema, self.json_type, known, older=older)
        if new:
            self._client.call("PUT", f"/{_path(index)}/_mapping", {"properties": new})


def write_alias(index: str) -> str:
    """The alias that a sink writes through: an index that was deleted is missed, not made anew by the server."""
    return f"{index}.write"


class _SearchTables:
    def __init__(
        self,
        client: SearchClient,
        indexes: _Indexes,
        writer: BulkWriter,
        session: _SearchSession,
        clock: Clock,
    ) -> None:
        self._client = client
        self._indexes = indexes
        self._writer = writer
        self._session = session
        self._clock = clock

    def prepare(self, schema: TableSchema, *, older: bool) -> bool:
        made = self._indexes.prepare(schema, older=older)
        self._session.wrote(self._index(schema))
        return made

    def write(self, batch: TableBatch) -> Applied:
        documents = self._indexes.documents(batch.schema)
        made = batch.converted(documents.body, documents.filled)
        index = self._index(batch.schema)
        self._session.wrote(index)
        fates = self._writer.write(self._items(index, made))
        if fates.refused and documents.nested:
            fates = self._with_text(index, made, documents, fates)
        deletes = made.rows.count(None)
        gone = sum(1 for n in fates.stale | fates.refused.keys() if made.rows[n] is None)
        written = len(made.rows) - len(fates.stale) - len(fates.refused)
        return Applied(
            applied=written - (deletes - gone),
            deleted=deletes - gone,
            stale=len(fates.stale),
            refused=made.refused + made.batch.refused(fates.refused),
        )

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        return _look_up(self._client, self._indexes, schema, keys)

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        index = self._index(schema)
        below = {"bool": {"filter": [{"range": {POS: {"lt": floor}}}], **LIVE["bool"]}}
        documents = self._indexes.documents(schema)
        while True:
            self._client.call("POST", f"/{_path(index)}/_refresh")
            found = False
            for page in self._client.scroll(f"/{_path(index)}", {"query": below}, _PAGE):
                found = True
                keys = [documents.stored(hit["_id"], hit["_source"]).key for hit in page]
                self._writer.write(self._deletes(index, keys, floor))
                crash_point("search_page_swept")
            if not found:
                return

    def _index(self, schema: TableSchema) -> str:
        index = self._indexes.existing(schema)
        if index is None:
            raise ConfigError(f"the index of {schema.table} is gone", hint="restart the sink: it makes it anew")
        return index

    def _items(self, index: str, made: Converted[bytes]) -> Iterator[Item]:
        name = orjson.dumps(write_alias(index))
        now_ms = self._clock.now_ns() // 1_000_000
        rows = zip(made.batch.keys, made.batch.pos, made.rows, strict=True)
        for number, (key, pos, body) in enumerate(rows):
            last = deleted(key, pos, now_ms) if body is None else body + ending(key, pos)
            yield Item(number, action(key, pos, name) + last)

    def _deletes(self, index: str, keys: Sequence[str], pos: str) -> Iterator[Item]:
        name = orjson.dumps(write_alias(index))
        now_ms = self._clock.now_ns() // 1_000_000
        for number, key in enumerate(keys):
            yield Item(number, action(key, pos, name) + deleted(key, pos, now_ms))

    def _with_text(self, index: str, made: Converted[bytes], documents: Documents, fates: Fates) -> Fates:
        """Write refused documents once more, their json as text: some legal json no index takes (a term of over
        32 kB, arrays twenty deep, a name twice)."""
        name = orjson.dumps(write_alias(index))

        def again() -> Iterator[Item]:
            for number in fates.refused:
                body = made.rows[number]
                if body is not None:
                    key, pos = made.batch.keys[number], made.batch.pos[number]
                    yield Item(number, action(key, pos, name) + documents.with_text(body) + ending(key, pos))

        second = self._writer.write(again())
        return Fates(stale=fates.stale | second.stale, refused=second.refused)


class SearchNotes:
    """The index ``<prefix>-_watermark``: one document for the watermark, one for the floors."""

    def __init__(self, client: SearchClient, index: Callable[[], str]) -> None:
        self._client = client
        self._name = index
        self._made: set[str] = set()

    @property
    def _index(self) -> str:
        return self._name()

    def read(self) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        answer = self._client.call("POST", f"/{_path(self._index)}/_mget", {"ids": ["watermark", "floors"]}, absent={})
        for document in answer.get("docs", ()):
            if document.get("found"):
                found.update({name: orjson.dumps(note) for name, note in document["_source"].items()})
        return found

    def write(self, name: str, text: bytes) -> None:
        if self._index not in self._made:
            self._make()
        identity = "watermark" if name == "watermark" else "floors"
        body = {"doc": {name: orjson.Fragment(text)}, "doc_as_upsert": True}
        if identity == "watermark":
            self._client.call("PUT", f"/{_path(self._index)}/_doc/{identity}", {name: orjson.Fragment(text)})
        else:
            self._client.call("POST", f"/{_path(self._index)}/_update/{identity}", body)

    def _make(self) -> None:
        body = {"mappings": {"enabled": False}, "settings": {"index": {"number_of_shards": 1, "number_of_replicas": 0}}}
        try:
            self._client.call("PUT", f"/{_path(self._index)}", body)
        except Conflict as conflict:
            if "resource_already_exists" not in conflict.message:
                raise
        self._made.add(self._index)


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
        self._known: dict[str, float] = {}

    def wrote(self, index: str) -> None:
        self._dirty.add(index)
        self._known.setdefault(index, self._clock.monotonic())

    def show(self) -> None:
        # What others wrote through this store's spec is for this one to show too.
        written = self._known.keys() if self._shared else self._dirty
        if written:
            self._client.call("POST", f"/{','.join(map(_path, sorted(written)))}/_refresh")
            self._dirty.clear()
        now = self._clock.monotonic()
        for index, last in self._known.items():
            if now - last >= self._every_s:
                self._known[index] = now
                self._purge(index)

    def close(self) -> None:
        self._writer.close()
        self._client.close()

    def _purge(self, index: str) -> None:
        before = self._clock.now_ns() // 1_000_000 - self._remember_ms
        old = {"bool": {"filter": [{"term": {DELETED: True}}, {"range": {DELETED_AT: {"lt": before}}}]}}
        params = {"conflicts": "proceed", "refresh": "true"}
        self._client.call("POST", f"/{_path(index)}/_delete_by_query", {"query": old}, params=params)


class _SearchReader:
    def __init__(self, client: SearchClient, indexes: _Indexes) -> None:
        self._client = client
        self._indexes = indexes

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        index = self._indexes.existing(schema)
        if index is None:
            return
        stored = self._indexes.documents(schema).stored
        for page in self._client.scroll(f"/{_path(index)}", {"query": {"match_all": {}}}, _PAGE):
            yield stored_batch([stored(hit["_id"], hit["_source"]) for hit in page])

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return _look_up(self._client, self._indexes, schema, [key]).get(key)

    def close(self) -> None:
        """The sink closes what both use."""


def _look_up(client: SearchClient, indexes: _Indexes, schema: TableSchema, keys: Sequence[str]) -> dict[str, StoredRow]:
    """Documents by key, also those that do not show yet."""
    index = indexes.existing(schema)
    found: dict[str, StoredRow] = {}
    if index is None:
        return found
    documents = indexes.documents(schema)
    for start in range(0, len(keys), _LOOKUP):
        ids = [document_id(key) for key in keys[start : start + _LOOKUP]]
        answer = client.call("POST", f"/{_path(index)}/_mget", {"ids": ids})
        for hit in answer["docs"]:
            if hit.get("found"):
                row = documents.stored(hit["_id"], hit["_source"])
                found[row.key] = row
    return found


def _path(name: str) -> str:
    return quote(name, safe="")
