"""Redis, Valkey or a cluster of them, as the cache needs it: scripts over many keys, and a walk over all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from cdc.process.clock import Clock
from cdc.process.crash_points import crash_point, declare
from cdc.process.errors import ConfigError, Exit, SinkError
from cdc.process.errors import Retry as TryAgain
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import StoreFacts
from sinks.contract.port import StoreAway
from sinks.contract.sink_spec import SinkSpec
from sinks.contract.store_connection import (
    TIMEOUT_S,
    StoreRetry,
    bad_url,
    brief,
    log,
    login,
    login_refused,
    place,
    stranger,
    unreachable,
    unreached,
)

declare("cache_trip_sent")

_TIMEOUT_S = 30.0
_SCAN_COUNT = 1000
_PASSING = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
)
"""AuthenticationError is a ConnectionError too. It was recognised before."""


class Call(NamedTuple):
    """One script over some keys."""

    keys: Sequence[bytes]
    arguments: Sequence[bytes | str]


class CacheClient:
    """One connection to a server, or one to each node of a cluster. One thread at a time."""

    def __init__(self, url: str, password: str | None, clock: Clock) -> None:
        self._url = url
        self._password = password
        self.store = f"Redis at {place(url, URLS)}"
        self._retry = StoreRetry(store=self.store, passing=_PASSING, explain=self._explained, clock=clock)
        self._scripts = load("sinks.cache", "rows.lua") | load("sinks.cache", "place.lua")
        try:
            self._single: Any = redis.Redis.from_url(url, **self._options())
        except ValueError:
            raise bad_url("an option in it has a value that does not fit", URLS) from None
        self._cluster: Any = None
        self._retry.call(self._connect)

    def run(self, script: str, trips: Callable[[], Iterable[Sequence[Call]]]) -> Iterator[list[Any]]:
        """The answers to a script run over lots of keys: a list for each trip to the server, in order.

        A trip is under way while the next is made, so ``trips`` is asked for them one by one, and from the
        beginning, when the connection broke. In a cluster each lot's keys must share a slot. See :meth:`lots`.
        """
        return iter(self._retry.call(lambda: list(self._run(script, trips())), again=self._again))

    def lots(self, keys: Sequence[bytes], most: int) -> list[Sequence[int]]:
        """Numbers of keys that may go into one call together, at most ``most`` each."""
        if self._cluster is None:
            return [range(start, min(start + most, len(keys))) for start in range(0, len(keys), most)]
        slots = [key_slot(key) for key in keys]
        lots: list[Sequence[int]] = []
        for _, same in groupby(sorted(range(len(keys)), key=slots.__getitem__), key=slots.__getitem__):
            numbers = list(same)
            lots.extend(numbers[start : start + most] for start in range(0, len(numbers), most))
        return lots

    def scan(self, pattern: str) -> Iterator[list[bytes]]:
        """Every key that meets a glob pattern, some at a time. A key may come more than once."""
        for node in self._nodes():
            cursor = 0
            while True:
                cursor, keys = self._retry.call(lambda: self._scan(node, cursor, pattern))  # noqa: B023 - called at once
                if keys:
                    yield keys
                if cursor == 0:
                    break

    def fields(self, key: str) -> dict[bytes, bytes]:
        """A hash, whole. Empty for a key that holds something else."""
        return self._retry.call(lambda: self._fields(key))

    def _fields(self, key: str) -> dict[bytes, bytes]:
        try:
            return dict(self._any.hgetall(key))
        except redis.ResponseError as error:
            if _is_of_another_type(error):
                return {}
            raise

    def set_field(self, key: str, field: str, text: bytes) -> None:
        """One field of a hash. It does not expire. A value of another type is replaced: the key is ours."""
        self._retry.call(lambda: self._set_field(key, field, text))

    def _set_field(self, key: str, field: str, text: bytes) -> None:
        try:
            self._any.hset(key, field, text)
        except redis.ResponseError as error:
            if not _is_of_another_type(error):
                raise
            log.warning("strange_key_replaced", extra={"store": self.store, "key": key})
            self._any.unlink(key)
            self._any.hset(key, field, text)

    def remove(self, keys: Sequence[bytes]) -> None:
        """Remove keys of any type."""
        for lot in self.lots(keys, _SCAN_COUNT):
            self._retry.call(lambda: self._any.unlink(*[keys[n] for n in lot]))  # noqa: B023 - called at once

    def remove_fields(self, key: str, fields: Sequence[bytes]) -> None:
        """Remove fields of a hash."""
        if fields:
            self._retry.call(lambda: self._any.hdel(key, *fields))

    def servers(self) -> frozenset[str]:
        """The ids of the processes that serve, each other after a start: one, or those of a cluster's primaries."""
        asked = self._retry.call(lambda: [node.info("server") for node in self._nodes()])
        return frozenset(str(found.get("run_id", "")) for found in asked)

    def close(self) -> None:
        """End all connections. Raises nothing."""
        with contextlib.suppress(Exception):
            self._single.close()
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close()

    @property
    def _any(self) -> Any:
        return self._cluster if self._cluster is not None else self._single

    def _options(self) -> dict[str, Any]:
        return {
            "socket_timeout": _TIMEOUT_S,
            "socket_connect_timeout": _TIMEOUT_S / 3,
            "retry": Retry(NoBackoff(), 0),
            **({"password": self._password} if self._password is not None else {}),
        }

    def _connect(self) -> None:
        try:
            clustered = bool(self._single.info("cluster").get("cluster_enabled"))
        except redis.AuthenticationError as error:
            raise login_refused(self.store, str(error)) from None
        if clustered:
            self._cluster = RedisCluster.from_url(self._url, **self._options())
        self._warn_of_eviction()

    def _warn_of_eviction(self) -> None:
        """An evicted key forgets its pos, and with it the delete it may have been the memory of."""
        memory = self._single.info("memory")
        policy = str(memory.get("maxmemory_policy", ""))
        if int(memory.get("maxmemory", 0)) and policy != "noeviction":
            log.warning("cache_may_evict", extra={"store": self.store, "maxmemory_policy": policy})

    def _nodes(self) -> list[Any]:
        if self._cluster is None:
            return [self._single]
        return [self._cluster.get_redis_connection(node) for node in self._cluster.get_primaries()]

    def _scan(self, node: Any, cursor: int, pattern: str) -> tuple[int, list[bytes]]:
        found: tuple[int, list[bytes]] = node.scan(cursor, match=pattern, count=_SCAN_COUNT)
        return found

    def _run(self, script: str, trips: Iterable[Sequence[Call]]) -> Iterator[list[Any]]:
        if self._cluster is not None:
            for calls in trips:
                # Of the scripting commands a cluster's pipeline takes EVAL alone. It follows moved slots by itself.
                pipe = self._cluster.pipeline(transaction=False)
                for call in calls:
                    pipe.execute_command("EVAL", self._scripts[script], len(call.keys), *call.keys, *call.arguments)
                yield list(pipe.execute())
            return
        connection = self._single.connection_pool.get_connection()
        try:
            # Loaded each time: the server may have been restarted, or its scripts flushed.
            connection.send_command("SCRIPT", "LOAD", self._scripts[script])
            sha = connection.read_response()
            yield from _ahead(connection, sha, trips)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._single.connection_pool.release(connection)

    def _again(self) -> None:
        self._single.connection_pool.disconnect()

    def _explained(self, error: Exception) -> SinkError:
        if isinstance(error, redis.AuthenticationError):
            return login_refused(self.store, str(error))
        if isinstance(error, redis.exceptions.NoPermissionError) or any(words in str(error) for words in _NO_RIGHT):
            return login_refused(self.store, str(error), retry=TryAgain.NEVER)
        if "DB index is out of range" in str(error):
            # No time mends it, and the sink would begin again for ever.
            hint = "the URL ends with the number of a database that it has"
            words = f"{self.store} has no such database: {brief(str(error))}"
            return SinkError(words, hint=hint, retry=TryAgain.NEVER, exit=Exit.CONFIG)
        if isinstance(error, redis.exceptions.OutOfMemoryError):
            return StoreAway(f"{self.store} is full: {brief(str(error))}", hint="raise its maxmemory")
        if isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
            return unreachable(self.store, str(error))
        return StoreAway(f"{self.store} answers with an error: {brief(str(error))}")


_NO_RIGHT = ("NOPERM", "ACL failure in script", "can't run this command", "can't access at least one of the keys")
"""A right that is missing within a script comes as an error of the script, in other words by version."""


def _is_of_another_type(error: redis.ResponseError) -> bool:
    return str(error).startswith("WRONGTYPE")


def _ahead(connection: Any, sha: bytes, trips: Iterable[Sequence[Call]]) -> Iterator[list[Any]]:
    """Send each trip before the answers to the one before it are read."""
    waiting = 0
    for calls in trips:
        commands = [("EVALSHA", sha, len(call.keys), *call.keys, *call.arguments) for call in calls]
        connection.send_packed_command(connection.pack_commands(commands))
        crash_point("cache_trip_sent")
        if waiting:
            yield [connection.read_response() for _ in range(waiting)]
        waiting = len(calls)
    if waiting:
        yield [connection.read_response() for _ in range(waiting)]


URLS = ("redis://host:6379/0", "rediss://host:6379/0", "unix:///path/to/socket")


def probe_cache(spec: SinkSpec) -> StoreFacts:
    """A Redis or Valkey: its version, and whether it evicts keys.

    Raises ConfigError for a URL, a login or a protocol that does not fit, SinkError when no server answers.
    """
    url, password = spec.text("url"), spec.secrets.get("password")
    where = place(url, URLS)
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            decode_responses=True,
            **({"password": password} if password is not None else {}),
        )
    except ValueError:
        raise bad_url("an option in it has a value that does not fit", URLS) from None
    try:
        server = client.info("server")
        memory = client.info("memory")
    except redis.AuthenticationError as error:
        raise login(where, str(error)) from None
    except redis.ResponseError as error:
        hint = "the URL ends with the number of a database that it has" if "DB index" in str(error) else ""
        raise ConfigError(
            f"Redis at {where} refuses to answer: {quoted(str(error))}", hint=hint or "check the rights of its user"
        ) from None
    except (redis.InvalidResponse, UnicodeDecodeError):
        raise stranger("Redis's protocol", where) from None
    except redis.RedisError as error:
        raise unreached("Redis", where, str(error), "url") from None
    finally:
        client.close()
    product = "Valkey" if server.get("server_name") == "valkey" else "Redis"
    version = server.get("valkey_version") if product == "Valkey" else server.get("redis_version")
    notes = {"maxmemory": str(memory.get("maxmemory", 0)), "maxmemory_policy": str(memory.get("maxmemory_policy", ""))}
    return StoreFacts(product=product, version=str(version or ""), notes=notes)
