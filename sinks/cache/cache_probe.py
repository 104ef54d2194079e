"""Asks a cache who it is, for ``cdc check``."""

from __future__ import annotations

import redis

from cdc.checks.facts import StoreFacts
from cdc.errors import ConfigError
from cdc.foreign import quoted
from sinks.registry import SinkSpec
from sinks.store_facts import TIMEOUT_S, bad_url, login, place, stranger, unreached

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
