"""Generations of a cache: keys below a prefix of their own each. ``HGET <prefix>:_watermark generation`` names the one
in use.

The one that was in use before expires after ``replay_window``: until then a rollback finds it whole. Later the topics
may have lost deletes that it lacks, so it could not be gone on with anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cdc.clock import Clock
from cdc.errors import Retry, SinkError
from cdc.schema import TableSchema
from sinks.cache.cache_client import CacheClient, Call
from sinks.cache.cache_store import CacheNotes, cache_prefix, generation_prefix, key_pattern
from sinks.generations import FIRST, GENERATION, Generations, number_in_use
from sinks.registry import SinkSpec

_KEYS_PER_SCRIPT = 500
_MARGIN_MS = 60_000
"""So long before a generation expires it is not gone back to any more."""


def open_generations(spec: SinkSpec, clock: Clock) -> Generations:
    """Connect. SinkError when the server does not answer."""
    client = CacheClient(spec.text("url"), spec.secrets.get("password"), clock)
    return _CacheGenerations(client, spec.prefix, int(spec.replay_window_s * 1000), clock)


_EXPIRES, _LEAVING = "expires", "leaving"
"""Notes: until when (ms since 1970) a generation is whole, which one is being left."""


class _CacheGenerations:
    def __init__(self, client: CacheClient, prefix: str, kept_ms: int, clock: Clock) -> None:
        self._client = client
        self._prefix = prefix
        self._kept_ms = kept_ms
        self._clock = clock
        self._notes = CacheNotes(client, lambda: prefix)

    def in_use(self) -> int:
        return number_in_use(self._notes)

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """The generation in use stays where it is."""

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        self._take_back(number, shapes)
        before = self.in_use()
        if before != number:
            self._notes.write(_LEAVING, b"%d" % before)
            self._notes_of(before).write(_EXPIRES, b"%d" % (self._now_ms() + self._kept_ms))
            self._notes.write(GENERATION, b"%d" % number)
        left = int(self._notes.read().get(_LEAVING, b"0"))
        if left:
            self._expire(left, shapes, max(1, self._kept_ms))
            self._client.remove_fields(f"{self._prefix}:_watermark", [_LEAVING.encode()])

    def _take_back(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """Let a generation that was left stay. SinkError when some of it may have expired."""
        notes = self._notes_of(number)
        until_ms = int(notes.read().get(_EXPIRES, b"0"))
        if not until_ms:
            return
        if self._now_ms() >= until_ms - _MARGIN_MS:
            raise SinkError(
                f"generation {number} of {self._prefix} has expired: it is kept for replay_window",
                hint="cdc rebuild fills a new one from the log",
                retry=Retry.NEVER,
            )
        self._expire(number, shapes, 0)
        self._client.remove_fields(f"{generation_prefix(self._prefix, number)}:_watermark", [_EXPIRES.encode()])

    def _expire(self, number: int, shapes: Sequence[TableSchema], after_ms: int) -> None:
        prefix = generation_prefix(self._prefix, number)
        for table_prefix in sorted({cache_prefix(prefix, shape) for shape in shapes}):
            for keys in self._client.scan(key_pattern(table_prefix)):
                for lot in self._client.lots(keys, _KEYS_PER_SCRIPT):
                    call = Call([keys[n] for n in lot], [str(after_ms)])
                    self._client.run("expire", partial(iter, [[call]]))

    def _notes_of(self, number: int) -> CacheNotes:
        return CacheNotes(self._client, lambda: generation_prefix(self._prefix, number))

    def _now_ms(self) -> int:
        return self._clock.now_ns() // 1_000_000

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        prefix = generation_prefix(self._prefix, number)
        for table_prefix in sorted({cache_prefix(prefix, shape) for shape in shapes}):
            for keys in self._client.scan(key_pattern(table_prefix)):
                self._client.remove(keys)
        # The first one's notes hold the word on which is in use.
        key = f"{prefix}:_watermark"
        kept = (GENERATION.encode(), _LEAVING.encode()) if number == FIRST else ()
        self._client.remove_fields(key, [name for name in self._client.fields(key) if name not in kept])

    def close(self) -> None:
        self._client.close()
