"""Generations of a search index: an index per table and generation. The alias, and a note, name the one in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from cdc.clock import Clock
from cdc.errors import SinkError
from cdc.schema import TableSchema
from sinks.generations import FIRST, GENERATION, Generations, number_in_use
from sinks.names import index_alias
from sinks.registry import SinkSpec
from sinks.search.search_client import SearchClient
from sinks.search.search_mapping import LIVE
from sinks.search.search_notes import SearchNotes, notes_index


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
        actions: list[dict[str, Any]] = []
        for alias in sorted({index_alias(self._prefix, shape.table) for shape in shapes}):
            wanted = f"{alias}-{number}"
            if not self._exists(wanted):
                raise SinkError(f"generation {number} has no index {wanted}", hint="it is not whole: rebuild anew")
            existing = self._client.call("GET", f"/_alias/{quote(alias, safe='')}", absent={})
            actions += [{"remove": {"index": index, "alias": alias}} for index in existing if index != wanted]
            actions.append({"add": {"index": wanted, "alias": alias, "filter": LIVE}})
        # All aliases at once, and then the note for the writer.
        self._client.call("POST", "/_aliases", {"actions": actions})
        self._notes.write(GENERATION, b"%d" % number)

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        names = {f"{index_alias(self._prefix, shape.table)}-{number}" for shape in shapes}
        notes = notes_index(self._prefix, number)
        if number != FIRST:
            names.add(notes)
        else:
            # The first one's notes hold the word on which is in use.
            self._client.call("DELETE", f"/{quote(notes, safe='')}/_doc/watermark", absent={})
        for name in sorted(names):
            self._client.call("DELETE", f"/{quote(name, safe='')}", absent={})

    def _exists(self, index: str) -> bool:
        return bool(self._client.call("GET", f"/{quote(index, safe='')}", absent={}))

    def close(self) -> None:
        self._client.close()
