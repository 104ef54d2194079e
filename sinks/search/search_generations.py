"""Generations of a search index, and its notes: an index per table and generation. The alias names the one in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import SinkError
from cdc.record.documents import dumped
from cdc.record.schema import TableSchema
from sinks.contract.generations import FIRST, GENERATION, Generations, number_in_use
from sinks.contract.port import StoreAway
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_names import index_alias, index_prefix
from sinks.contract.store_notes import WATERMARK
from sinks.search.search_client import Conflict, IndexGone, SearchClient
from sinks.search.search_mapping import LIVE

declare("search_generation_noted")


def open_generations(spec: SinkSpec, clock: Clock) -> Generations:
    """Connect. SinkError when the server does not answer."""
    user, authority = spec.optional("user"), spec.optional("ca_certs")
    client = SearchClient(spec.text("url"), user, spec.secrets.get("password"), authority, clock)
    return _SearchGenerations(client, spec.prefix, int(spec.number("replicas", 0)))


class _SearchGenerations:
    def __init__(self, client: SearchClient, prefix: str, replicas: int) -> None:
        self._client = client
        self._prefix = prefix
        self._notes = SearchNotes(client, lambda: notes_index(prefix, FIRST), replicas)

    def in_use(self) -> int:
        return number_in_use(self._notes)

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """The generation in use stays where it is."""

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        aliases = self._aliases(shapes)
        for alias in aliases:
            if not self._exists(f"{alias}-{number}"):
                raise SinkError(
                    f"generation {number} has no index {alias}-{number}", hint="it is not whole: rebuild anew"
                )
        # The note first, and then all aliases at once. Where that is cut short the sink leads them there, by the note.
        # The other way round it would feed the other generation, or this one by that one's watermark.
        self._notes.write(GENERATION, b"%d" % number)
        crash_point("search_generation_noted")
        self._lead(aliases, number)

    def _lead(self, aliases: Iterable[str], number: int) -> None:
        """Lead readers to a generation, where it has an index."""
        actions: list[dict[str, Any]] = []
        for alias in aliases:
            wanted = f"{alias}-{number}"
            if self._exists(wanted):
                existing = self._client.call("GET", f"/_alias/{quote(alias, safe='')}", absent={})
                actions += [{"remove": {"index": index, "alias": alias}} for index in existing if index != wanted]
                actions.append({"add": {"index": wanted, "alias": alias, "filter": LIVE}})
        if actions:
            self._client.call("POST", "/_aliases", {"actions": actions})

    def _aliases(self, shapes: Sequence[TableSchema]) -> list[str]:
        return sorted({index_alias(self._prefix, shape.table) for shape in shapes})

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        aliases = self._aliases(shapes)
        names = {f"{alias}-{number}" for alias in aliases}
        in_use = self.in_use()
        if in_use != number:
            # They may name it still: a way back that was cut short behind its note.
            self._lead([alias for alias in aliases if self._names(alias, f"{alias}-{number}")], in_use)
        notes = notes_index(self._prefix, number)
        if number != FIRST:
            names.add(notes)
        else:
            # The first one's notes hold the word on which is in use.
            self._client.call("DELETE", f"/{quote(notes, safe='')}/_doc/watermark", absent={})
        for name in sorted(names):
            self._client.call("DELETE", f"/{quote(name, safe='')}", absent={})

    def _names(self, alias: str, index: str) -> bool:
        return index in self._client.call("GET", f"/_alias/{quote(alias, safe='')}", absent={})

    def _exists(self, index: str) -> bool:
        return bool(self._client.call("GET", f"/{quote(index, safe='')}", absent={}))

    def close(self) -> None:
        self._client.close()


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
    :class:`sinks.contract.store_notes.Notes`."""

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
