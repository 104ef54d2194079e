"""The cache: a hash per row in Redis or Valkey, ``row`` as JSON of plain values beside its ``pos``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from cdc.process.clock import Clock
from cdc.process.errors import Retry, SinkError
from cdc.record.documents import dumped
from cdc.record.schema import TableSchema
from sinks.cache.cache_client import CacheClient, Call
from sinks.cache.cached_values import NotedTypes
from sinks.contract.batch_plan import TableBatch
from sinks.contract.generations import FIRST, GENERATION, Generations, OpenGeneration, number_in_use
from sinks.contract.port import Applied, OpenSink, PlaceMissing, Refused, StoredRow, rows_at_once, stored_batch
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store import StoreSink
from sinks.contract.store_names import cache_table
from sinks.contract.store_notes import NotedWatermarks
from sinks.contract.table_places import PLACE, Places, PlaceStep

# Generations of a cache: keys below a prefix of their own each. ``HGET <prefix>:_watermark generation`` names the one
# in use.
#
# The one that was in use before expires after ``replay_window``: until then a rollback finds it whole. Later the
# topics may have lost deletes that it lacks, so it could not be gone on with anyway.

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


_FIRST_ROWS, _SCAN_ROWS = 64, 4_096
"""How many rows a scan reads first, and at most: those before them say how large they are."""
_CALLS_PER_TRIP = 16
_BYTES_PER_SCRIPT = 512 * 1024
_BYTES_PER_TRIP = 8 * 1024**2
_GLOB = re.compile(r"([*?\[\]\\])")


def open_cache(spec: SinkSpec, clock: Clock) -> OpenSink:
    """Connect. SinkError when the server does not answer or refuses the login."""
    client = CacheClient(spec.text("url"), spec.secrets.get("password"), clock)
    place = CachePlace(client, spec)
    tables = _CacheTables(client, place, spec.replay_window_s)
    places = Places(tables)
    sink = StoreSink(tables, place.notes, _CacheSession(client), places=places, shared=spec.follows, moved=place.look)
    reader = _CacheReader(client, place)
    servers = client.servers()
    return OpenSink(
        sink=sink,
        watermarks=NotedWatermarks(place.notes),
        reader=reader,
        places=places,
        # A server that starts again has what it last saved: rows that it acknowledged before may be gone, and a batch
        # whose first half they were must not be claimed.
        current=lambda: place.current() and client.servers() == servers,
        discards=_CacheDiscards(client, place),
        sweep_late=sink.sweep_late,
    )


class CachePlace(OpenGeneration):
    """Where the keys of a generation are: those of the first one below the prefix itself."""

    def __init__(self, client: CacheClient, spec: SinkSpec) -> None:
        super().__init__(CacheNotes(client, lambda: spec.prefix), spec.options.get("generation"), shared=spec.follows)
        self._base = spec.prefix
        self.notes = CacheNotes(client, lambda: self.prefix)

    @property
    def prefix(self) -> str:
        """The prefix of every key of this generation."""
        return generation_prefix(self._base, self.number)


def generation_prefix(prefix: str, number: int) -> str:
    """The prefix of all keys of a generation."""
    return prefix if number == FIRST else f"{prefix}@{number}"


def cache_prefix(prefix: str, schema: TableSchema) -> str:
    """The prefix of all keys of a table."""
    return f"{prefix}:{cache_table(schema.table)}:"


class _CacheTables:
    def __init__(self, client: CacheClient, place: CachePlace, replay_window_s: float) -> None:
        self._client = client
        self._place = place
        self._types = NotedTypes(place.notes)
        self._remember_ms = str(max(1, int(replay_window_s * 1000)))

    def prepare(self, schema: TableSchema, *, older: bool) -> None:
        """A hash needs no preparation, and its JSON carries any shape. Readers want the columns' types."""
        if not older:
            self._types.keep(schema)

    def write(self, batch: TableBatch) -> Applied:
        done = Applied()
        for piece in batch.pieces(_BYTES_PER_TRIP):
            done += self._write(piece)
        return done

    def _write(self, batch: TableBatch) -> Applied:
        converted = batch.converted(batch.plain.row, dumped)
        prefix = cache_prefix(self._place.prefix, batch.schema).encode()
        keys = [prefix + key.encode() for key in converted.batch.keys]
        done = Applied(refused=converted.refused)
        trips = list(self._trips(keys, converted.rows))
        answers = self._client.run(
            "write",
            lambda: ([self._call(lot, keys, converted.batch.pos, converted.rows) for lot in trip] for trip in trips),
        )
        for trip, answered in zip(trips, answers, strict=True):
            for lot, (written, deleted, stale, *strange) in zip(trip, answered, strict=True):
                refused = self._refused(converted.batch, [lot[number - 1] for number in strange])
                done += Applied(applied=written, deleted=deleted, stale=stale, refused=refused)
        return done

    def stored(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        prefix = cache_prefix(self._place.prefix, schema).encode()
        full = [prefix + key.encode() for key in keys]
        return {keys[number]: row for number, row in _read(self._client, full, keys)}

    def remove_below(self, schema: TableSchema, floor: str) -> None:
        for keys in self._client.scan(key_pattern(cache_prefix(self._place.prefix, schema))):
            calls = [Call([keys[n] for n in lot], [floor]) for lot in self._client.lots(keys, _KEYS_PER_SCRIPT)]
            self._client.run("sweep", partial(iter, [calls]))

    def place(self, schema: TableSchema) -> bytes | None:
        return self._client.fields(self._place_key(schema)).get(b"place")

    def put_places(self, steps: Sequence[PlaceStep]) -> None:
        keys = [self._place_key(step.schema).encode() for step in steps]
        for lot in self._client.lots(keys, _KEYS_PER_SCRIPT):
            texts: list[bytes | str] = []
            for step in (steps[number] for number in lot):
                fit = [*step.fit, *([b""] if None in step.upon else [])]
                texts += [step.after, str(len(fit)), *fit]
            calls = [Call([keys[number] for number in lot], texts)]
            for strange in next(self._client.run("place", partial(iter, [calls])))[0]:
                raise PlaceMissing.moved(steps[lot[strange - 1]].schema.table)

    def taken_back(self, schema: TableSchema, *, empty: bool) -> None:
        for keys in self._client.scan(key_pattern(cache_prefix(self._place.prefix, schema))) if empty else ():
            self._client.remove(keys)

    def _place_key(self, schema: TableSchema) -> str:
        return cache_prefix(self._place.prefix, schema) + PLACE

    def _call(
        self, lot: Sequence[int], keys: Sequence[bytes], pos: Sequence[str], rows: Sequence[bytes | None]
    ) -> Call:
        arguments: list[bytes | str] = [self._remember_ms]
        for number in lot:
            arguments.append(pos[number])
            arguments.append(rows[number] or b"")
        return Call([keys[number] for number in lot], arguments)

    def _trips(self, keys: Sequence[bytes], rows: Sequence[bytes | None]) -> Iterator[list[Sequence[int]]]:
        """Lots of keys that go to the server together: many, but not too many bytes."""
        trip: list[Sequence[int]] = []
        size = 0
        size_in_all = sum(len(row) for row in rows if row is not None)
        # A script holds the server up while it runs: keep it short when rows are long.
        most = min(_KEYS_PER_SCRIPT, 1 + _BYTES_PER_SCRIPT * len(rows) // max(1, size_in_all))
        for lot in self._client.lots(keys, most):
            lot_bytes = sum(len(rows[number] or b"") for number in lot)
            if trip and (len(trip) == _CALLS_PER_TRIP or size + lot_bytes > _BYTES_PER_TRIP):
                yield trip
                trip, size = [], 0
            trip.append(lot)
            size += lot_bytes
        if trip:
            yield trip

    def _refused(self, batch: TableBatch, strange: Sequence[int]) -> tuple[Refused, ...]:
        return batch.refused(dict.fromkeys(strange, "the cache holds something else under this key"))


class CacheNotes:
    """The hash ``<prefix>:_watermark``. Implements :class:`sinks.contract.store_notes.Notes`."""

    def __init__(self, client: CacheClient, prefix: Callable[[], str]) -> None:
        self._client = client
        self._prefix = prefix

    @property
    def _key(self) -> str:
        return f"{self._prefix()}:_watermark"

    def read(self) -> Mapping[str, bytes]:
        return {name.decode(errors="replace"): text for name, text in self._client.fields(self._key).items()}

    def write(self, name: str, text: bytes) -> None:
        self._client.set_field(self._key, name, text)


class _CacheSession:
    def __init__(self, client: CacheClient) -> None:
        self._client = client

    def show(self) -> None:
        """Acknowledged writes show already."""

    def close(self) -> None:
        self._client.close()


class _CacheReader:
    def __init__(self, client: CacheClient, place: CachePlace) -> None:
        self._client = client
        self._place = place

    def scan(self, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        prefix = cache_prefix(self._place.prefix, schema)
        skip = len(prefix.encode())
        most = _FIRST_ROWS
        for every in self._client.scan(key_pattern(prefix)):
            ahead = [key for key in every if _is_text(key)]
            while ahead:
                full, ahead = ahead[:most], ahead[most:]
                keys = [key[skip:].decode() for key in full]
                found = [row for _, row in _read(self._client, full, keys)]
                if found:
                    batch = stored_batch(found)
                    yield batch
                    most = min(4 * most, rows_at_once(batch.nbytes / len(found), _SCAN_ROWS))

    def get(self, schema: TableSchema, key: str) -> StoredRow | None:
        return self.get_many(schema, [key]).get(key)

    def get_many(self, schema: TableSchema, keys: Sequence[str]) -> Mapping[str, StoredRow]:
        prefix = cache_prefix(self._place.prefix, schema)
        found = _read(self._client, [(prefix + key).encode() for key in keys], keys)
        return {keys[number]: row for number, row in found}

    def close(self) -> None:
        """The sink closes what both use."""


class _CacheDiscards:
    def __init__(self, client: CacheClient, place: CachePlace) -> None:
        self._client = client
        self._place = place

    def remove(self, schema: TableSchema, versions: Mapping[str, str]) -> None:
        prefix = cache_prefix(self._place.prefix, schema)
        keys, pos = [(prefix + key).encode() for key in versions], list(versions.values())
        for lot in self._client.lots(keys, _KEYS_PER_SCRIPT):
            call = Call([keys[number] for number in lot], [pos[number] for number in lot])
            self._client.run("discard", partial(iter, [[call]]))


def _read(client: CacheClient, full: Sequence[bytes], keys: Sequence[str]) -> Iterator[tuple[int, StoredRow]]:
    """The values under some keys, by the key's number. Keys that hold nothing are left out."""
    lots = client.lots(full, _KEYS_PER_SCRIPT)
    trips = [lots[start : start + _CALLS_PER_TRIP] for start in range(0, len(lots), _CALLS_PER_TRIP)]
    answers = client.run("read", lambda: ([Call([full[n] for n in lot], []) for lot in trip] for trip in trips))
    for trip, answered in zip(trips, answers, strict=True):
        for lot, answer in zip(trip, answered, strict=True):
            for place, number in enumerate(lot):
                pos, row = answer[2 * place], answer[2 * place + 1]
                if pos is not None and keys[number] != PLACE:
                    yield number, StoredRow(key=keys[number], pos=pos.decode(errors="replace"), row=row)


def _is_text(key: bytes) -> bool:
    """Whether a key can be one of ours. Another under our prefix is read by nobody who looks for a row."""
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def key_pattern(prefix: str) -> str:
    """The glob pattern of all keys that begin with a prefix."""
    return _GLOB.sub(r"\\\1", prefix) + "*"
