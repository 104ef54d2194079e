"""Rows of a cache for programs that read it: the generation in use, escaped keys, deleted rows. ``from cdc.read``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Self
from uuid import UUID

import orjson
import redis
from redis.cluster import RedisCluster

from cdc.errors import SinkError, UsageError
from cdc.foreign import quoted
from cdc.json_bytes import dumped
from cdc.position import Position
from cdc.progress import Watermark
from cdc.tokens import Token
from cdc.topic import TableName
from cdc.wire.format import POS
from cdc.wire.plain import KEYLESS, NULL_IN_KEY, escape_key
from sinks.cache.cache_probe import URLS
from sinks.cache.cache_store import generation_prefix
from sinks.generations import FIRST, GENERATION
from sinks.names import cache_table
from sinks.notes import NotedWatermarks
from sinks.store_facts import bad_url, place

KeyPart = str | int | bool | Decimal | UUID | date | None
"""A key column's value. None in views alone. Other types are passed as the text that the stores have."""


@dataclass(frozen=True, slots=True)
class CachedRow:
    """A row as the cache has it. ``row``: plain values by column, None where it was deleted. ``position``: the change
    that it is of, which grows with each."""

    row: Mapping[str, Any] | None
    position: Position


class ReadRow(NamedTuple):
    """A row as a program has read it from Postgres, as plain values. ``row``: None where there is none. ``token``:
    taken on the same server before the row was read."""

    row: Mapping[str, Any] | None
    token: Token


class Cache:
    """A pipeline's cache, read as ``cdc rebuild`` and the sink write it. A context. Threads may share it.

    It asks the cache alone: no Kafka, no Postgres, no settings file. Each call is one trip, and one more after a
    rebuild switched to another generation.
    """

    def __init__(
        self, url: str, name: str, *, password: str | None = None, cluster: bool = False, timeout_s: float = 2.0
    ) -> None:
        """``url``: redis:// or rediss://. ``name``: the pipeline's, or the sink's ``prefix``. ``cluster``: of several
        servers. ``timeout_s``: for each trip. ConfigError where the URL is none.
        """
        self._where = place(url, URLS)
        self._name = name
        self._generation = FIRST
        options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
        options |= {"password": password} if password is not None else {}
        try:
            self._client: Any = (RedisCluster if cluster else redis.Redis).from_url(url, **options)
        except ValueError:
            raise bad_url("an option in it has a value that does not fit", URLS) from None
        except redis.RedisError as error:
            raise self._away(error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, table: str, *key: KeyPart) -> Mapping[str, Any] | None:
        """The row with this key, as plain values by column. None where there is none, deleted rows among them.

        ``table``: ``schema.table``, or ``view.NAME``. ``key``: its columns' values, in the key's order. SinkError when
        the cache does not answer, UsageError for a value that is no key.
        """
        found = self.row(table, *key)
        return found.row if found is not None else None

    def row(self, table: str, *key: KeyPart) -> CachedRow | None:
        """The same with its position, and deleted rows as such as long as the cache remembers them."""
        (found,) = self.rows(table, [key])
        return found

    def rows(self, table: str, keys: Iterable[Sequence[KeyPart]]) -> list[CachedRow | None]:
        """Many rows of one table, in the order of their keys, in one trip. None where there is no such row.

        Raises SinkError when the cache does not answer, UsageError for a table without its schema and for a value that
        is no key.
        """
        texts, within = [key_text(key) for key in keys], self._within(table)
        while True:
            prefix = generation_prefix(self._name, self._generation)
            generation, found = self._trip([f"{prefix}:{within}:{text}" for text in texts])
            if generation == self._generation:
                return [_cached(*fields) for fields in found]
            self._generation = generation

    def read_through(
        self,
        table: str,
        key: Sequence[KeyPart],
        read: Callable[[], ReadRow],
        *,
        keep_s: float = 30.0,
        since: Token | None = None,
    ) -> Mapping[str, Any] | None:
        """The row with this key, or what ``read`` finds in Postgres where the cache has nothing under the key.

        For a cache that is being filled, or that evicts. A row from Postgres is kept for ``keep_s`` seconds under a
        key of its own, ``<name>:_fill:…``, which the sink neither reads nor writes: a change that the sink writes, a
        delete among them, is always read instead. ``since``: a token of the reader's own write. A row that was
        read from Postgres before it is not used.

        Raises SinkError when the cache does not answer, UsageError as :meth:`rows` and for a row whose values are not
        plain, and what ``read`` raises.
        """
        found = self.row(table, *key)
        if found is not None:
            return found.row
        place = f"{self._name}:_fill:{self._within(table)}:{key_text(key)}"
        filled = self._filled(place, since)
        if filled is not None:
            return filled
        row, taken = read()
        if row is None:
            return None
        text = _plain_text(row, taken)
        # The row is right also where the cache went away meanwhile.
        with suppress(redis.RedisError):
            self._client.set(place, text, px=max(1, int(keep_s * 1000)))
        document: Mapping[str, Any] = orjson.loads(text)["row"]
        return document

    def _filled(self, place: str, since: Token | None) -> Mapping[str, Any] | None:
        try:
            text = self._client.get(place)
        except redis.RedisError as error:
            raise self._away(error) from None
        try:
            document = orjson.loads(text or b"{}")
            row, taken = document["row"], Token.parse(document["token"])
        except (ValueError, KeyError, TypeError, UsageError):
            return None
        # At the same LSN it may have been read before the commit was visible.
        seen = since is None or (
            (taken.system, taken.timeline) == (since.system, since.timeline) and taken.lsn > since.lsn
        )
        return row if seen and isinstance(row, dict) else None

    def watermark(self) -> Watermark | None:
        """The LSN up to which the cache shows every change, and tables of which it does not. None before any."""
        while True:
            notes = f"{generation_prefix(self._name, self._generation)}:_watermark"
            try:
                pipe = self._client.pipeline(transaction=False)
                pipe.hget(f"{self._name}:_watermark", GENERATION)
                pipe.hgetall(notes)
                number, found = pipe.execute()
            except redis.RedisError as error:
                raise self._away(error) from None
            if _number(number) == self._generation:
                return NotedWatermarks(_Fields(found)).read()
            self._generation = _number(number)

    def _within(self, table: str) -> str:
        within = cache_table(TableName(*table.split(".", 1))) if "." in table else ""
        if not within:
            raise UsageError(f"the table {quoted(table)} has no schema", hint="write it as schema.table, or view.NAME")
        return within

    def _trip(self, keys: Sequence[str]) -> tuple[int, list[tuple[bytes | None, bytes | None]]]:
        """The generation in use, and position and row of each key."""
        try:
            pipe = self._client.pipeline(transaction=False)
            pipe.hget(f"{self._name}:_watermark", GENERATION)
            for key in keys:
                pipe.hmget(key, POS, "row")
            number, *found = pipe.execute()
        except redis.RedisError as error:
            raise self._away(error) from None
        return _number(number), [(pos, row) for pos, row in found]

    def _away(self, error: redis.RedisError) -> SinkError:
        hint = "check the cache's URL and login"
        return SinkError(f"Redis at {self._where} does not answer: {quoted(error)}", hint=hint)


class _Fields:
    """Notes that were read already. Implements :class:`sinks.notes.Notes`."""

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self._fields = {name.decode(errors="replace"): text for name, text in fields.items()}

    def read(self) -> Mapping[str, bytes]:
        return self._fields

    def write(self, name: str, text: bytes) -> None:
        raise NotImplementedError("a reader writes nothing")


def key_text(key: Sequence[KeyPart]) -> str:
    """A key as the stores have it. UsageError for a value of another type, whose text depends on the column.

    >>> key_text([42]), key_text(["a:b", None]), key_text([])
    ('42', 'a%3Ab:%null', 'all')
    """
    return ":".join(map(_part, key)) if key else KEYLESS


def _part(value: KeyPart) -> str:
    match value:
        case None:
            text = NULL_IN_KEY
        case bool():
            text = "true" if value else "false"
        case int() | UUID():
            text = str(value)
        case Decimal():
            text = format(value, "f")
        case str():
            text = escape_key(value)
        case date() if not isinstance(value, datetime):
            text = f"{value.isoformat()}Z"
        case _:
            raise UsageError(
                f"a key is made of text, numbers, UUIDs and dates, and not of {type(value).__name__}",
                hint="pass the text that the stores have: see Plain values in sinks/README.md",
            )
    return text


def _plain_text(row: Mapping[str, Any], taken: Token) -> bytes:
    try:
        # Moments have other texts in the stores than in Python.
        return dumped({"token": str(taken), "row": dict(row)}, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError as error:
        raise UsageError(
            f"a row that fills the cache has plain values: {quoted(error)}",
            hint="convert them as the stores have them: see Plain values in sinks/README.md",
        ) from None


def _number(noted: bytes | None) -> int:
    """The generation in use. Negative while a switch to it is under way."""
    return abs(int(noted)) if noted is not None else FIRST


def _cached(pos: bytes | None, row: bytes | None) -> CachedRow | None:
    """None where there is no row of ours, somebody else's hash among them."""
    try:
        return CachedRow(orjson.loads(row) if row is not None else None, Position.parse((pos or b"").decode()))
    except ValueError:
        return None
