"""Generations of a search index: an index per table and generation. The alias, and a note, name the one in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from cdc.clock import Clock
from cdc.crash import crash_point, declare
from cdc.errors import SinkError
from cdc.schema import TableSchema
from sinks.generations import FIRST, GENERATION, Generations, number_in_use
from sinks.names import index_alias
from sinks.registry import SinkSpec
from sinks.search.search_client import SearchClient
from sinks.search.search_mapping import LIVE
from sinks.search.search_notes import SearchNotes, notes_index

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
