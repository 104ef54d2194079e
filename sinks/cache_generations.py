"""Generations of a cache: keys below a prefix of their own each; ``HGET <prefix>:_watermark generation`` names the one
in use."""

from __future__ import annotations

from collections.abc import Sequence

from cdc.clock import Clock
from cdc.schema import TableSchema
from sinks.cache import CacheNotes, cache_prefix, generation_prefix, key_pattern
from sinks.cache_client import CacheClient
from sinks.generations import FIRST, GENERATION, Generations, number_in_use
from sinks.registry import SinkSpec


def open_generations(spec: SinkSpec, clock: Clock) -> Generations:
    """Connect. SinkError when the server does not answer."""
    return _CacheGenerations(CacheClient(spec.text("url"), spec.secrets.get("password"), clock), spec.prefix)


class _CacheGenerations:
    def __init__(self, client: CacheClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._notes = CacheNotes(client, lambda: prefix)

    def in_use(self) -> int:
        return number_in_use(self._notes)

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """What is in use stays where it is."""

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        self._notes.write(GENERATION, b"%d" % number)

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        prefix = generation_prefix(self._prefix, number)
        for table_prefix in sorted({cache_prefix(prefix, shape) for shape in shapes}):
            for keys in self._client.scan(key_pattern(table_prefix)):
                self._client.remove(keys)
        # The first one's notes hold the word on which is in use.
        key = f"{prefix}:_watermark"
        kept = GENERATION.encode() if number == FIRST else b""
        self._client.remove_fields(key, [name for name in self._client.fields(key) if name != kept])

    def close(self) -> None:
        self._client.close()
