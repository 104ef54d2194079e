"""Asks a store who it is: for ``cdc check``. Short timeouts, no retries; SinkError or ConfigError with the remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from cdc.checks.facts import StoreFacts
from cdc.errors import ConfigError, SinkError
from cdc.foreign import quoted

TIMEOUT_S = 5.0
REDIS = ("redis://host:6379/0", "rediss://host:6379/0", "unix:///path/to/socket")
SEARCH = ("https://host:9200", "http://host:9200")


def redis_facts(url: str, password: str | None) -> StoreFacts:
    """A Redis or Valkey: its version, and whether it evicts keys."""
    import redis

    where = place(url, REDIS)
    try:
        client = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            decode_responses=True,
            **({"password": password} if password is not None else {}),
        )
    except ValueError:
        raise bad_url("an option in it has a value that does not fit", REDIS) from None
    try:
        server = client.info("server")
        memory = client.info("memory")
    except redis.AuthenticationError as error:
        raise _login(where, str(error)) from None
    except redis.ResponseError as error:
        raise ConfigError(f"Redis at {where} refuses to answer: {_brief(str(error))}") from None
    except redis.RedisError as error:
        raise _unreachable("Redis", where, str(error), "url") from None
    finally:
        client.close()
    product = "Valkey" if server.get("server_name") == "valkey" else "Redis"
    version = server.get("valkey_version") if product == "Valkey" else server.get("redis_version")
    notes = {"maxmemory": str(memory.get("maxmemory", 0)), "maxmemory_policy": str(memory.get("maxmemory_policy", ""))}
    return StoreFacts(product=product, version=str(version or ""), notes=notes)


def opensearch_facts(url: str, user: str | None, password: str | None, ca_certs: str | None) -> StoreFacts:
    """An OpenSearch or Elasticsearch: its version and its health."""
    import opensearchpy

    where = place(url, SEARCH)
    client = opensearchpy.OpenSearch(
        hosts=[url],
        http_auth=(user, password or "") if user else None,
        ca_certs=ca_certs,
        timeout=TIMEOUT_S,
        max_retries=0,
    )
    try:
        version = client.info()["version"]
        health = client.cluster.health()["status"]
    except (opensearchpy.AuthenticationException, opensearchpy.AuthorizationException) as error:
        raise _login(where, f"HTTP {error.status_code}") from None
    except opensearchpy.SSLError as error:
        raise ConfigError(
            f"the certificate of {where} is not trusted: {_brief(str(error))}", hint="set ca_certs to its authority"
        ) from None
    except opensearchpy.ConnectionError as error:
        raise _unreachable("OpenSearch", where, _brief(str(error.info or error.error)), "url") from None
    except opensearchpy.OpenSearchException as error:
        raise SinkError(f"OpenSearch at {where} answers with an error: {_brief(str(error))}") from None
    finally:
        client.close()
    product = "OpenSearch" if version.get("distribution") == "opensearch" else "Elasticsearch"
    return StoreFacts(product=product, version=str(version["number"]), notes={"health": str(health)})


def delta_facts(path: str, storage_options: Mapping[str, str]) -> StoreFacts:
    """A folder that can be written, or an object store that answers."""
    import deltalake
    from deltalake.exceptions import DeltaError

    if "://" not in path:
        _check_folder(Path(path))
        return StoreFacts(product="the folder", version=path)
    try:
        deltalake.DeltaTable.is_deltatable(path, dict(storage_options))
    except (DeltaError, OSError, ValueError) as error:
        raise SinkError(
            f"the object store at {path} does not answer: {_brief(str(error))}",
            hint="check path, storage_options and storage_secrets",
        ) from None
    return StoreFacts(product="the object store", version=path)


def sql_facts(url: str, password: str | None) -> StoreFacts:
    """A database that SQLAlchemy speaks."""
    import sqlalchemy

    try:
        parsed = sqlalchemy.make_url(url)
        parsed = parsed.set(password=password) if password is not None else parsed
        engine = sqlalchemy.create_engine(parsed)
    except (sqlalchemy.exc.ArgumentError, ImportError, ValueError) as error:
        raise ConfigError(
            f"SQLAlchemy cannot use the url: {_brief(str(error))}", hint='write url = "postgresql+psycopg://..."'
        ) from None
    where = parsed.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("select 1"))
            version = ".".join(str(part) for part in connection.dialect.server_version_info or ())
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = _brief(str(error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error))
        if "password" in reason or "denied" in reason:
            raise _login(where, reason) from None
        raise _unreachable("the database", where, reason, "url") from None
    finally:
        engine.dispose()
    return StoreFacts(product=engine.dialect.name, version=version)


def place(url: str, like: tuple[str, ...] = ()) -> str:
    """Host and port of a URL, without anything secret.

    ``like``: an example for each scheme that may be, the first for the hint; empty: any. ConfigError when it is
    no such URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port
    except ValueError:
        # The reason that Python gives may quote a password with a slash in it.
        raise bad_url("its host or port cannot be read", like) from None
    schemes = [example.partition("://")[0] for example in like]
    if like and parts.scheme not in schemes:
        raise bad_url(f"it begins with none of {', '.join(f'{scheme}://' for scheme in schemes)}", like)
    return f"{host}:{port}" if port else host


def bad_url(why: str, like: tuple[str, ...]) -> ConfigError:
    """What to raise for a URL that is none; names nothing of it, for it may hold a password."""
    hint = f'write url = "{like[0]}"' if like else "write scheme://user@host:port/..., with a port up to 65535"
    return ConfigError(f"the sink's url cannot be used: {why}", hint=hint)


def _check_folder(folder: Path) -> None:
    """ConfigError unless the folder, or the nearest one above it that exists, can be written."""
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"the folder {folder} cannot be written", hint=f"give this user the right to write {nearest}")


def _login(where: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{where} refuses the login: {_brief(reason)}", hint='set password = "env:NAME" or "file:PATH" for this sink'
    )


def _unreachable(product: str, where: str, reason: str, setting: str) -> SinkError:
    return SinkError(
        f"cannot reach {product} at {where}: {_brief(reason)}",
        hint=f"check the sink's {setting}, and that the server runs and can be reached from here",
    )


def _brief(reason: str) -> str:
    """The first line, and not much of it."""
    return quoted(reason)
