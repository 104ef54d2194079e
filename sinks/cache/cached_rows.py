"""Rows of a cache for programs that read it: the generation in use, escaped keys, deleted rows. ``from cdc.read``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Self
from uuid import UUID

import redis
from redis.cluster import RedisCluster

from cdc.freshness.rules import NotShown, Wanted, topics_of
from cdc.process.errors import SinkError, UsageError
from cdc.process.untrusted_text import quoted
from cdc.record.documents import reading
from cdc.record.position import Position
from cdc.record.progress import Watermark
from cdc.record.tokens import Token
from cdc.record.topic_names import TableName
from cdc.wire.format import POS
from cdc.wire.plain import KEYLESS, NULL_IN_KEY, escape_key, store_key
from sinks.cache.cache_client import URLS
from sinks.cache.cache_store import generation_prefix
from sinks.cache.cached_values import FIELDS, KEEP, Fill, row_of_json, typed, types_note, types_of
from sinks.contract.generations import FIRST, GENERATION
from sinks.contract.store_connection import bad_url, place
from sinks.contract.store_names import cache_fill, cache_table
from sinks.contract.store_notes import WATERMARK, NotedWatermarks

KeyPart = str | int | bool | Decimal | UUID | date | None
"""A key column's value. None in views alone. Other types are passed as the text that the stores have."""


@dataclass(frozen=True, slots=True)
class CachedRow:
    """A row as the cache has it. ``row``: plain values by column, None where it was deleted. ``position``: the change
    that it is of, which grows with each."""

    row: Mapping[str, Any] | None
    position: Position


class ReadRow(NamedTuple):
    """A row as a program has read it from Postgres, as plain values by column: a driver's tuple is none. ``row``: None
    where there is none. ``token``: taken on the same server before the row was read."""

    row: Mapping[str, Any] | None
    token: Token


class Cache:
    """A pipeline's cache, read as ``cdc rebuild`` and the sink write it. A context. Threads may share it.

    It asks the cache alone: no Kafka, no Postgres, no settings file. Each call is one trip, and one more after a
    rebuild switched to another generation. In a cluster of servers it is two or three.

    ``since`` is a token of the reader's own write. Where it is given, row and watermark are of one generation and one
    trip, so no switch comes between them. NotShown where that watermark does not show the token.

    Values are plain, as JSON has them, or Python's (``typed``): Decimal, date, time, datetime, timedelta, UUID, bytes.
    One that Python's type does not hold stays text: ``infinity``, a year before 1 or after 9999, ``24:00:00``, months.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        password: str | None = None,
        cluster: bool = False,
        timeout_s: float = 2.0,
        typed: bool = False,
    ) -> None:
        """``url``: redis:// or rediss://. ``name``: the pipeline's, or the sink's ``prefix``. ``cluster``: of several
        servers. ``timeout_s``: for each trip. ``typed``: values of Python's types. ConfigError where the
        URL is none.
        """
        self._typed = typed
        self._where = place(url, URLS)
        self._name = name
        self._generation = FIRST
        self._fed: set[str] = set()
        self._cluster = cluster
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

    def get(self, table: str, *key: KeyPart, since: Token | None = None) -> Mapping[str, Any] | None:
        """The row with this key, as values by column. None where there is none, deleted rows among them.

        ``table``: ``schema.table``, or ``view.NAME``. ``key``: its columns' values, in the key's order. SinkError when
        the cache does not answer, UsageError for a table that the cache does not have and for a value that is no key,
        NotShown as the class says.
        """
        found = self.row(table, *key, since=since)
        return found.row if found is not None else None

    def row(self, table: str, *key: KeyPart, since: Token | None = None) -> CachedRow | None:
        """The same with its position, and deleted rows as such as long as the cache remembers them."""
        (found,) = self.rows(table, [key], since=since)
        return found

    def rows(
        self, table: str, keys: Iterable[Sequence[KeyPart]], *, since: Token | None = None
    ) -> list[CachedRow | None]:
        """Many rows of one table, in the order of their keys, in one trip. None where there is no such row.

        SinkError when the cache does not answer, UsageError and NotShown as for :meth:`get`.
        """
        texts = [key_text(key) for key in keys]
        look = self._look(table, texts, noted=since is not None)
        if since is not None:
            wanted = self._wanted(table, since)
            if not wanted.met(look.watermark()):
                raise wanted.refusal(look.watermark(), 0.0)
        found = [self._cached(answer, look.types()) for answer in look.rows[: len(texts)]]
        if texts and not any(found) and table not in self._fed:
            self._require_fed(table)
        return found

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

        For a cache that is being filled, or that evicts. A row from Postgres is kept under a key of its own,
        ``<name>:_fill:…``, which the sink neither reads nor writes: for ``keep_s`` seconds, and at most until the
        watermark has passed it. A change that the sink has written, a delete among them, is read instead. ``since``: a
        token of the reader's own write. A row of the cache that does not show it, and one that was read from Postgres
        before it, are not used.

        Raises SinkError when the cache does not answer, UsageError as :meth:`rows` and for what is no ReadRow of plain
        values, and what ``read`` raises.
        """
        text = key_text(key)
        look = self._look(table, [text], noted=True, fills=True)
        found, fill = self._cached(look.rows[0], look.types()), Fill.kept(self._ours(look.rows[1]))
        place = self._fill_place(look.generation, table, text)
        if found is not None and (since is None or self._shows(table, since, look)):
            if fill is not None:
                # The row may be evicted, and the fill is of before it.
                self._quietly("unlink", place)
            return found.row
        if fill is not None and fill.serves(look.watermark(), since):
            return typed(fill.document(), look.types())
        fill = Fill.of(read())
        self._quietly("eval", KEEP, 1, place, *fill.arguments(keep_s))
        return typed(fill.document(), look.types())

    def watermark(self) -> Watermark | None:
        """The LSN up to which the cache shows every change, and tables of which it does not. None before any."""
        return self._following(lambda: self._ask(self._notes())).watermark()

    def _wanted(self, table: str, since: Token) -> Wanted:
        return Wanted(f"the cache of {self._name}", since, frozenset({table}))

    def _shows(self, table: str, since: Token, look: _Look) -> bool:
        try:
            return self._wanted(table, since).met(look.watermark())
        except NotShown:
            return False

    def _look(self, table: str, keys: Sequence[str], *, noted: bool, fills: bool = False) -> _Look:
        """Rows of the generation in use, and their fills behind them. ``noted``: with its watermark, which is long
        where there are many tables."""
        within = _within(table)

        def look() -> _Look:
            prefix = generation_prefix(self._name, self._generation)
            rows: list[_Call] = [("hmget", f"{prefix}:{within}:{key}", POS, "row") for key in keys]
            types = [("hmget", f"{prefix}:_watermark", types_note(_named(table)))] if self._typed else []
            places = [self._fill_place(self._generation, table, key) for key in keys if fills]
            rows += [("hmget", place, *FIELDS) for place in places]
            found = self._ask(self._notes() if noted else [], [*rows, *types])
            return replace(found, noted_types=self._own(found.rows[-1])[0]) if types else found

        return self._following(look)

    def _following(self, look: Callable[[], _Look]) -> _Look:
        # A watermark that is read behind the rows would speak of newer ones: all is read again where the place of one
        # was not known.
        while True:
            found = look()
            if found.generation == self._generation:
                return found
            self._generation = found.generation

    def _fill_place(self, generation: int, table: str, key: str) -> str:
        return cache_fill(self._name, generation, _named(table), key)

    def _notes(self) -> list[_Call]:
        return [("hget", f"{generation_prefix(self._name, self._generation)}:_watermark", WATERMARK)]

    def _ask(self, notes: list[_Call], rows: Sequence[_Call] = ()) -> _Look:
        """The watermark comes before the rows, which are at least as new. The generation comes last: it was in use all
        the time, and what was discarded meanwhile is not taken for rows that are not there."""
        in_use: list[_Call] = [("hget", f"{self._name}:_watermark", GENERATION)]
        # The servers of a cluster are asked at the same time.
        lots = [notes, rows, in_use] if self._cluster else [[*notes, *rows, *in_use]]
        try:
            *found, number = [answer for calls in lots if calls for answer in self._answers(calls)]
        except redis.RedisError as error:
            raise self._away(error) from None
        text = self._own(found[0]) if notes else None
        return _Look(_number(self._own(number)), text, found[len(notes) :])

    def _answers(self, calls: Sequence[_Call]) -> list[Any]:
        pipe = self._client.pipeline(transaction=False)
        for name, *arguments in calls:
            getattr(pipe, name)(*arguments)
        answers: list[Any] = pipe.execute(raise_on_error=False)
        return answers

    def _own(self, answer: Any) -> Any:
        """An answer about the sink's notes."""
        if _is_of_another_type(answer):
            raise SinkError(
                f"{self._name}:_watermark in Redis at {self._where} is no hash, and so not of the sink",
                hint="check the pipeline's name, and which program writes that key",
            )
        if isinstance(answer, redis.RedisError):
            raise self._away(answer)
        return answer

    def _ours(self, answer: Any) -> Any:
        """The fields of a key. None where somebody else's key has this name."""
        return None if _is_of_another_type(answer) else self._own(answer)

    def _require_fed(self, table: str) -> None:
        """UsageError for a table of which the cache has read no topic."""
        watermark = self.watermark()
        topics = [*watermark.topic_ids, *watermark.offsets] if watermark is not None else []
        if topics and not topics_of(table, topics):
            raise UsageError(
                f"the cache of {self._name} is fed with no table {quoted(table)}", hint="see the sink's tables setting"
            )
        if topics:
            self._fed.add(table)

    def _cached(self, answer: Any, types: Mapping[str, str]) -> CachedRow | None:
        """None where there is no row of ours, somebody else's key among them."""
        pos, row = self._ours(answer) or (None, None)
        try:
            document = row_of_json(row) if row is not None else None
            return CachedRow(typed(document, types), Position.parse((pos or b"").decode()))
        except ValueError:
            return None

    def _quietly(self, name: str, *arguments: Any) -> None:
        # The row that was read is right also where the cache went away meanwhile.
        try:
            getattr(self._client, name)(*arguments)
        except redis.exceptions.NoPermissionError as error:
            raise self._away(error) from None
        except redis.RedisError:
            pass

    def _away(self, error: redis.RedisError) -> SinkError:
        if isinstance(error, redis.ResponseError):
            hint = "check the rights of its user"
            return SinkError(f"Redis at {self._where} refuses a reader: {quoted(error)}", hint=hint)
        hint = "check the cache's URL and login"
        return SinkError(f"Redis at {self._where} does not answer: {quoted(error)}", hint=hint)


_Call = tuple[str, *tuple[str, ...]]
"""A method of the client, and its arguments."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The findings of one trip: the generation in use, the watermark of the one that was asked, and its rows."""

    generation: int
    noted: bytes | None
    rows: Sequence[Any]
    noted_types: bytes | None = None

    def types(self) -> Mapping[str, str]:
        """The types by which plain values become Python's. Empty where they stay plain."""
        return types_of(self.noted_types) or {}

    def watermark(self) -> Watermark | None:
        """None before any."""
        return NotedWatermarks(_Fields({WATERMARK: self.noted} if self.noted is not None else {})).read()


def _within(table: str) -> str:
    return cache_table(_named(table))


def _named(table: str) -> TableName:
    if "." not in table:
        raise UsageError(f"the table {quoted(table)} has no schema", hint="write it as schema.table, or view.NAME")
    return TableName(*table.split(".", 1))


def _is_of_another_type(answer: object) -> bool:
    return isinstance(answer, redis.ResponseError) and "WRONGTYPE" in str(answer)


class _Fields:
    """Notes that were read already. Implements :class:`sinks.contract.store_notes.Notes`."""

    def __init__(self, fields: Mapping[str, bytes]) -> None:
        self._fields = fields

    def read(self) -> Mapping[str, bytes]:
        return self._fields

    def write(self, name: str, text: bytes) -> None:
        raise NotImplementedError("a reader writes nothing")


def key_text(key: Sequence[KeyPart]) -> str:
    """A key as the stores have it. UsageError for a value of another type, whose text depends on the column.

    >>> key_text([42]), key_text(["a:b", None]), key_text([])
    ('42', 'a%3Ab:%null', 'all')
    """
    return store_key(map(_part, key)) if key else KEYLESS


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


def _number(noted: bytes | None) -> int:
    """The generation in use. Negative while a switch to it is under way."""
    with reading("the generation in use, as the cache says it,"):
        return abs(int(noted)) if noted is not None else FIRST
