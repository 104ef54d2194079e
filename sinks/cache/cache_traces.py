"""The traces of a row in a cache: for ``cdc forget``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cdc.clock import Clock
from cdc.forget.holding import Kept, Trace, moment
from cdc.position import Position
from cdc.schema import TableSchema
from sinks.cache.cache_client import CacheClient
from sinks.cache.cache_store import CachePlace, cache_prefix
from sinks.names import cache_fill
from sinks.registry import SinkSpec
from sinks.row_traces import remembered, shown_row


def open_traces(spec: SinkSpec, clock: Clock) -> CacheTraces:
    """Connect. SinkError when the server does not answer."""
    client = CacheClient(spec.text("url"), spec.secrets.get("password"), clock)
    return CacheTraces(client, CachePlace(client, spec), spec.prefix, clock)


class CacheTraces:
    """A row's key, and what a program of the user's may have put beside it by ``read_through``. A key that is written
    over leaves nothing. Implements :class:`cdc.forget.ports.KeptVersions`."""

    def __init__(self, client: CacheClient, place: CachePlace, base: str, clock: Clock) -> None:
        self._client = client
        self._place = place
        self._base = base
        self._clock = clock

    def of_keys(self, schema: TableSchema, keys: Sequence[str]) -> Iterable[Trace]:
        for key in keys:
            yield from self._row(schema, key)
            yield from self._filled(schema, key)

    def _row(self, schema: TableSchema, key: str) -> Iterator[Trace]:
        full = f"{cache_prefix(self._place.prefix, schema)}{key}"
        fields = self._client.fields(full)
        if not fields:
            return
        left_ms = self._client.left_ms(full)
        until_ms = None if left_ms is None else self._now_ms() + left_ms
        if b"row" not in fields:
            yield remembered(f"the memory of the delete of {schema.table}", until_ms, "when it expires")
        elif until_ms is None:
            yield shown_row(f"the row of {schema.table}")
        else:
            until = f"{moment(until_ms)}, when it expires"
            yield Trace(what=f"the row of {schema.table}", kept=Kept.ROW, until=until, until_ms=until_ms, passing=True)

    def _filled(self, schema: TableSchema, key: str) -> Iterator[Trace]:
        full = cache_fill(self._base, self._place.number, schema.table, key)
        if not self._client.holds(full):
            return
        left_ms = self._client.left_ms(full)
        until_ms = self._now_ms() + (left_ms or 0)
        what = f"a row of {schema.table} that a program read through"
        until = f"{moment(until_ms)}, when it expires"
        yield Trace(what=what, kept=Kept.ROW, until=until, until_ms=until_ms, passing=True)

    def before(self, schema: TableSchema, position: Position | None) -> Iterable[Trace]:
        return ()

    def clean(self, schema: TableSchema) -> None:
        """Keys expire by themselves."""

    def close(self) -> None:
        self._client.close()

    def _now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000
