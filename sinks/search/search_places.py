"""The places of a search store's tables: a document of each index, hidden as deleted ones are.

It names its index, by the text by which the server tells it from every other one: in a copy it says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from cdc.schema import TableSchema
from sinks.names import index_prefix
from sinks.port import PlaceMissing
from sinks.search.search_bulk import require_taken
from sinks.search.search_client import IndexGone, SearchClient
from sinks.search.search_indexes import Indexes, faults, write_alias
from sinks.search.search_mapping import DELETED
from sinks.search.search_notes import path
from sinks.table_places import PLACE, PlaceStep

_CONFLICT = 409
_SEEN = ",items.*._seq_no,items.*._primary_term"


class SearchPlaces:
    """The places of the tables whose indexes are in use."""

    def __init__(self, client: SearchClient, indexes: Indexes, prefix: str) -> None:
        self._client = client
        self._indexes = indexes
        self._prefix = prefix
        self._uuids: dict[str, str] = {}
        self._seen: dict[str, dict[str, int]] = {}

    def read(self, schema: TableSchema) -> bytes | None:
        """As :meth:`sinks.table_places.PlaceStore.place`."""
        index = self._indexes.existing(schema)
        return self._found(index) if index is not None else None

    def put(self, steps: Sequence[PlaceStep]) -> None:
        """As :meth:`sinks.table_places.PlaceStore.put_places`. All in one request, each upon the document that was seen
        last."""
        indexes = [self._indexes.existing(step.schema) or "" for step in steps]
        lines = [self._lines(index, step) for index, step in zip(indexes, steps, strict=True)]
        answers = self._client.bulk(b"".join(lines), more=_SEEN)
        for index, step, answer in zip(indexes, steps, answers, strict=True):
            with faults(step.schema):
                self._taken(index, step, answer)

    def _taken(self, index: str, step: PlaceStep, answer: Mapping[str, Any]) -> None:
        if answer["status"] == _CONFLICT:
            raise PlaceMissing.moved(step.schema.table)
        require_taken(self._client.store, answer)
        self._seen[index] = _seen(answer)

    def _lines(self, index: str, step: PlaceStep) -> bytes:
        if index not in self._uuids:
            self._ask()
        seen = self._seen.get(index)
        place = {"_index": write_alias(index), "_id": PLACE, **(seen or {})}
        source = {DELETED: True, "place": step.after.decode(), "index": self._uuids.get(index)}
        return b"%b\n%b\n" % (orjson.dumps({"index" if seen else "create": place}), orjson.dumps(source))

    def _found(self, index: str) -> bytes | None:
        try:
            [document] = self._client.documents(f"/{path(index)}", (PLACE,))
        except IndexGone:
            document = {}
        if not document.get("found"):
            self._seen.pop(index, None)
            return None
        self._seen[index] = _seen(document)
        self._ask()
        source: dict[str, Any] = document["_source"]
        return str(source.get("place")).encode() if source.get("index") == self._uuids.get(index) else None

    def _ask(self) -> None:
        """The server's own names of all indexes."""
        every = self._client.call("GET", f"/{path(index_prefix(self._prefix))}-*/_settings/index.uuid", absent={})
        for index in self._indexes.in_use - every.keys():
            every |= self._client.call("GET", f"/{path(index)}/_settings/index.uuid", absent={})
        self._uuids = {name: one["settings"]["index"]["uuid"] for name, one in every.items()}


def _seen(document: Mapping[str, Any]) -> dict[str, int]:
    return {"if_seq_no": document["_seq_no"], "if_primary_term": document["_primary_term"]}
