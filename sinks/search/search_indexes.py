"""The indexes of a search store: their places, notes and mappings, and what the server does not do with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson

from cdc.process.crash_points import crash_point, declare
from cdc.record.schema import TableSchema
from sinks.contract.generations import FIRST, GENERATION, OpenGeneration
from sinks.contract.port import CannotCarry, PlaceMissing
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_names import index_alias, index_prefix
from sinks.contract.table_places import PLACE, PlaceStep
from sinks.search.search_bulk import require_taken
from sinks.search.search_client import Conflict, IndexBlocked, IndexGone, SearchClient
from sinks.search.search_documents import Documents
from sinks.search.search_generations import SearchNotes, notes_index, path
from sinks.search.search_mapping import DELETED, LIVE, Custom, changes, index_settings, mapping

declare("search_index_made")


class SearchPlace(OpenGeneration):
    """The generation whose indexes are written and read."""

    def __init__(self, client: SearchClient, spec: SinkSpec) -> None:
        replicas = int(spec.number("replicas", 0))
        base = SearchNotes(client, lambda: notes_index(spec.prefix, FIRST), replicas)
        given = spec.options.get("generation")
        super().__init__(base, given, shared=spec.follows)
        self.notes = SearchNotes(client, lambda: notes_index(spec.prefix, self.number), replicas)
        self.shown = given is None
        """Whether readers are led to it. Not to one that is filled beside."""
        self._said = GENERATION in base.read()

    @property
    def generation(self) -> int | None:
        """None: that of the index which the alias names, where no note says it."""
        return None if self.shown and self.number == FIRST and not self._said else self.number

    def look(self) -> bool:
        changed = super().look()
        self._said |= changed
        return changed


class Indexes:
    """The index of each table, and the maker of its documents."""

    def __init__(self, client: SearchClient, spec: SinkSpec, place: SearchPlace) -> None:
        self._client = client
        self._place = place
        self._prefix = spec.prefix
        self._shards = int(spec.number("shards", 1))
        self._replicas = int(spec.number("replicas", 0))
        self._mapping = str(spec.options.get("json_mapping") or "flat_object")
        self._custom = spec.optional("mappings")
        self._found: dict[str, str] = {}
        self._follows = spec.follows

    def look(self) -> bool:
        """Whether another generation, or another index, is in use since. The indexes are looked up anew then."""
        moved = self._place.look() or (self._follows and self._led_elsewhere())
        if moved:
            self._found.clear()
        return moved

    def current(self) -> bool:
        """Whether readers are still led to what is written."""
        return self._place.current() and not self._led_elsewhere()

    def _led_elsewhere(self) -> bool:
        """Whether an alias does not name the index that is written. A generation of ours counts for the same: which is
        in use the notes say."""
        if not self._found or not self._place.shown:
            return False
        named: dict[str, set[str]] = {}
        every = self._client.call("GET", f"/_alias/{path(index_prefix(self._prefix))}-*", absent={})
        for index, there in every.items():
            for alias in there["aliases"]:
                named.setdefault(alias, set()).add(index)
        return not all(
            any(one == index or is_generation(one, alias) for one in named.get(alias, ()))
            for alias, index in self._found.items()
        )

    @property
    def in_use(self) -> set[str]:
        """The indexes that were looked up."""
        return {*self._found.values()}

    @property
    def json_type(self) -> str:
        """The mapping of json on this server."""
        return "flattened" if self._mapping == "flat_object" and not self._client.is_opensearch else self._mapping

    def documents(self, schema: TableSchema) -> Documents:
        """The maker of the documents of a table of this shape."""
        return Documents(schema, as_text=self._mapping == "text", points=self._custom_of(schema).points)

    def _custom_of(self, schema: TableSchema) -> Custom:
        return Custom.read(self._custom, str(schema.table))

    def existing(self, schema: TableSchema) -> str | None:
        """The index of a table, if there is one."""
        alias = index_alias(self._prefix, schema.table)
        if alias not in self._found:
            there = self._led_to(alias) if self._place.shown else []
            if self._place.generation is not None and all(is_generation(one, alias) for one in there):
                name = f"{alias}-{self._place.generation}"
                there = [name] if self._client.call("GET", f"/{path(name)}", absent={}) else []
            if len(there) > 1:
                raise CannotCarry.because(schema.table, f"the alias {alias} names several indexes")
            if not there:
                return None
            self._found[alias] = there[0]
        return self._found[alias]

    def _led_to(self, alias: str) -> list[str]:
        return list(self._client.call("GET", f"/_alias/{path(alias)}", absent={}))

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        """Make the index, or add the fields it lacks."""
        index = self.existing(schema)
        if index is not None:
            self._add_fields(index, schema, older=older)
            return
        alias = index_alias(self._prefix, schema.table)
        name = f"{alias}-{self._place.number}"
        aliases: dict[str, Any] = {write_alias(name): {}}
        if not self._led_to(alias):
            aliases[alias] = {"filter": LIVE}
        custom = self._custom_of(schema)
        custom.check(schema)
        body = {
            "settings": {"index": custom.index_settings(index_settings(schema, self._shards, self._replicas))},
            "mappings": mapping(schema, self.json_type, custom),
            "aliases": aliases,
        }
        try:
            self._client.call("PUT", f"/{path(name)}", body)
        except Conflict as conflict:
            if "resource_already_exists" not in conflict.kind:
                if custom.mark or custom.settings:
                    raise custom.refused(schema, conflict.reason or conflict.kind) from None
                raise
            # Another process of this sink was faster, or somebody removed the alias.
            self._client.call("PUT", f"/{path(name)}/_alias/{path(alias)}", {"filter": LIVE})
            self._add_fields(name, schema, older=older)
            return
        crash_point("search_index_made")

    def _lead(self, alias: str, index: str) -> None:
        """Lead readers to what is written: where they are led nowhere, or to another generation still, as behind a
        switch that was cut short. The notes say which is in use."""
        led = self._led_to(alias)
        ours = self._place.generation is not None and all(is_generation(one, alias) for one in led)
        if not led or (ours and self._place.current()):
            actions: list[dict[str, Any]] = [{"remove": {"index": one, "alias": alias}} for one in led]
            actions.append({"add": {"index": index, "alias": alias, "filter": LIVE}})
            self._client.call("POST", "/_aliases", {"actions": actions})

    def _add_fields(self, index: str, schema: TableSchema, *, older: bool) -> None:
        """Fields of another shape. CannotCarry where the newest one indexes otherwise: what is indexed stays so."""
        [existing] = self._client.call("GET", f"/{path(index)}", absent={}).values() or [None]
        if existing is None:
            self._found.clear()
            raise PlaceMissing.of(schema.table, f"its index {index}")
        blocks = existing["settings"]["index"].get("blocks", {})
        closed = [name for name, is_set in blocks.items() if name != "read" and is_set == "true"]
        if closed:
            raise CannotCarry.because(schema.table, f"its index takes no writes: index.blocks.{closed[0]} is set")
        alias = index_alias(self._prefix, schema.table)
        if self._place.shown and alias not in existing["aliases"]:
            self._lead(alias, index)
        if write_alias(index) not in existing["aliases"]:
            self._client.call("PUT", f"/{path(index)}/_alias/{path(write_alias(index))}")
        custom = self._custom_of(schema)
        custom.require_same(schema, existing["mappings"])
        known = existing["mappings"].get("properties", {})
        new = changes(schema, self.json_type, known, older=older, custom=custom)
        if new:
            self._client.call("PUT", f"/{path(index)}/_mapping", {"properties": new})


def is_generation(index: str, alias: str) -> bool:
    """Whether an index has the name that a generation of an alias has.

    >>> is_generation("shop-public.orders-2", "shop-public.orders"), is_generation("mine", "shop-public.orders")
    (True, False)
    """
    return index.startswith(f"{alias}-") and index.removeprefix(f"{alias}-").isdecimal()


def write_alias(index: str) -> str:
    """The alias that a sink writes through: an index that was deleted is missed, not made anew by the server."""
    return f"{index}.write"


@contextmanager
def faults(schema: TableSchema) -> Iterator[None]:
    """The fault of a table, from the server's refusal about its index."""
    try:
        yield
    except IndexGone:
        raise PlaceMissing.of(schema.table, "its index") from None
    except IndexBlocked:
        raise CannotCarry.because(
            schema.table, "its index takes no writes: it is closed, blocked or its disk full"
        ) from None
    except Conflict as conflict:
        why = conflict.reason or conflict.kind
        raise CannotCarry.because(schema.table, f"its index cannot become what the table is: {why}") from None


# The places of a search store's tables: a document of each index, hidden as deleted ones are.
#
# It names its index, by the text by which the server tells it from every other one: in a copy it says nothing.

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
        """As :meth:`sinks.contract.table_places.PlaceStore.place`."""
        index = self._indexes.existing(schema)
        return self._found(index) if index is not None else None

    def put(self, steps: Sequence[PlaceStep]) -> None:
        """As :meth:`sinks.contract.table_places.PlaceStore.put_places`. All in one request, each upon the document
        that was seen last."""
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
