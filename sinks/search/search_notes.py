"""The notes of a search store: an index with a document for the watermark, and one for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import orjson

from cdc.json_bytes import dumped
from sinks.generations import FIRST
from sinks.names import index_prefix
from sinks.notes import WATERMARK
from sinks.port import StoreAway
from sinks.search.search_client import Conflict, IndexGone, SearchClient

_OTHERS = "floors"
_TIMES = 100


def notes_index(prefix: str, number: int) -> str:
    """The index of a generation's watermark and floors."""
    base = f"{index_prefix(prefix)}-_watermark"
    return base if number == FIRST else f"{base}-{number}"


def path(name: str) -> str:
    """A name as one segment of a URL's path."""
    return quote(name, safe="")


class SearchNotes:
    """The index ``<prefix>-_watermark``: one document for the watermark, one for the floors. Implements
    :class:`sinks.notes.Notes`."""

    def __init__(self, client: SearchClient, index: Callable[[], str], replicas: int = 0) -> None:
        self._client = client
        self._name = index
        self._replicas = replicas
        self._made: set[str] = set()

    @property
    def _index(self) -> str:
        return self._name()

    def read(self) -> Mapping[str, bytes]:
        try:
            mark, others = self._client.documents(f"/{path(self._index)}", (WATERMARK, _OTHERS))
            return _notes(mark) | _notes(others)
        except IndexGone:
            return {}

    def write(self, name: str, text: bytes) -> None:
        self._make()
        if name == WATERMARK:
            self._put(WATERMARK, {WATERMARK: orjson.Fragment(text)})
        else:
            self._replace(name, text)

    def _put(self, identity: str, source: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> None:
        """Replace a document. Conflict where ``params`` say what it has to be and it is not."""
        self._client.call("PUT", f"/{path(self._index)}/_doc/{path(identity)}", source, params=params)

    def _replace(self, name: str, text: bytes) -> None:
        """Replace one note of a document with several. The server's own partial update would join the members of the
        old note and of the new one, and another process may write meanwhile."""
        for _ in range(_TIMES):
            [found] = self._client.documents(f"/{path(self._index)}", (_OTHERS,))
            seen: dict[str, Any] = {"op_type": "create"}
            if found.get("found"):
                seen = {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
            try:
                self._put(_OTHERS, {n: orjson.Fragment(one) for n, one in {**_notes(found), name: text}.items()}, seen)
            except Conflict as conflict:
                if "version_conflict" not in conflict.kind:
                    raise
                continue
            return
        raise StoreAway(f"the notes in {self._client.store} are changed all the time", hint="who else writes them?")

    def _make(self) -> None:
        """Make the index, unless it is there."""
        if self._index in self._made:
            return
        copies = {"number_of_replicas": self._replicas}
        body = {"mappings": {"enabled": False}, "settings": {"index": {"number_of_shards": 1, **copies}}}
        try:
            self._client.call("PUT", f"/{path(self._index)}", body)
        except Conflict as conflict:
            if "resource_already_exists" not in conflict.kind:
                raise
            self._copy_more()
        self._made.add(self._index)

    def _copy_more(self) -> None:
        """An index that was made without replicas gets those that are configured since. Any other number stays."""
        [existing] = self._client.call("GET", f"/{path(self._index)}/_settings").values()
        there = existing["settings"]["index"]
        if self._replicas and there["number_of_replicas"] == "0" and not _spreads(there):
            copies = {"index": {"number_of_replicas": self._replicas}}
            self._client.call("PUT", f"/{path(self._index)}/_settings", copies)


def _notes(document: Mapping[str, Any]) -> dict[str, bytes]:
    found = document.get("_source", {}) if document.get("found") else {}
    return {name: dumped(note) for name, note in found.items()}


def _spreads(settings: Mapping[str, Any]) -> bool:
    """Whether the server chooses the number of replicas by itself."""
    return str(settings.get("auto_expand_replicas", "false")) != "false"
