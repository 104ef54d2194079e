"""The traces of a row in a search index: for ``cdc forget``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cdc.clock import Clock
from cdc.forget.holding import Kept, Trace
from cdc.position import Position
from cdc.schema import TableSchema
from sinks.names import document_id
from sinks.registry import SinkSpec
from sinks.row_traces import remembered, shown_row
from sinks.search.search_client import SearchClient
from sinks.search.search_indexes import Indexes, SearchPlace
from sinks.search.search_mapping import DELETED, DELETED_AT
from sinks.search.search_notes import path


def open_traces(spec: SinkSpec, clock: Clock) -> SearchTraces:
    """Connect. SinkError when the server does not answer."""
    user, authority = spec.optional("user"), spec.optional("ca_certs")
    client = SearchClient(spec.text("url"), user, spec.secrets.get("password"), authority, clock)
    return SearchTraces(client, Indexes(client, spec, SearchPlace(client, spec)), int(spec.replay_window_s * 1000))


class SearchTraces:
    """Documents, and whether the index has segments with versions that were written over. It does not say which those
    are. Implements :class:`cdc.forget.ports.KeptVersions`."""

    def __init__(self, client: SearchClient, indexes: Indexes, remember_ms: int) -> None:
        self._client = client
        self._indexes = indexes
        self._remember_ms = remember_ms

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        index = self._indexes.existing(schema)
        if index is None:
            return
        for hit in self._client.documents(f"/{path(index)}", [document_id(key) for key in keys]):
            source = hit.get("_source") or {}
            if not hit.get("found"):
                continue
            if source.get(DELETED):
                until_ms = int(source[DELETED_AT]) + self._remember_ms if DELETED_AT in source else None
                yield remembered(f"the memory of the delete in {index}", until_ms, "when cdc sink cleans next")
            else:
                yield shown_row(f"the document in {index}")
        yield from self._segments(index)

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        index = self._indexes.existing(schema)
        return () if index is None else self._segments(index)

    def _segments(self, index: str) -> Iterator[Trace]:
        stats = self._client.call("GET", f"/{path(index)}/_stats/docs")["_all"]["total"]
        count = int(stats.get("docs", {}).get("deleted", 0))
        if count:
            what = f"{count} versions in {index} that were written over, in segments that are not merged yet"
            until = "the index has merged them, as it does by itself when there are many"
            cure = f"POST {index}/_forcemerge?max_num_segments=1"
            yield Trace(what=what, kept=Kept.MAYBE, until=until, passing=True, cure=cure)

    def clean(self, schema: TableSchema) -> None:
        """A merge is asked for by the operator: it reads and writes the whole index."""

    def close(self) -> None:
        self._client.close()
