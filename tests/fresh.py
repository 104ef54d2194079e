"""A database, a pipeline's topics, a cache and indexes that no other test has, on servers that all tests share."""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Iterator
from urllib.parse import quote

import psycopg
import redis as redis_client
import requests
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.stack.servers import DATABASES
from tests import emptied
from tests.waiting import wait_until


def fresh_name() -> str:
    """A name that no other test has: lower-case letters and digits."""
    return f"t{secrets.token_hex(5)}"


@contextlib.contextmanager
def new_database(postgres: str) -> Iterator[str]:
    """The fixture ``database``, for longer than a test."""
    name = emptied.take(postgres)
    if name is None:
        name = fresh_name()
        with psycopg.connect(postgres, autocommit=True) as admin:
            # Copied as files, it leaves little behind in memory for the checkpoint that dropping it is.
            admin.execute(sql.SQL("create database {} strategy file_copy").format(sql.Identifier(name)))
        emptied.note(postgres, name)
    yield make_conninfo(postgres, dbname=name)
    wait_until(lambda: _left(postgres, name), 60, f"database {name} empty")


def _left(postgres: str, name: str) -> bool:
    """Emptied or dropped now; not yet when the server just went away, because it comes back."""
    try:
        with psycopg.connect(postgres, autocommit=True) as admin:
            _release(admin, name)
        emptied.leave(postgres, name)
    except psycopg.OperationalError:
        return False
    return True


def drop_database(admin: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """Drop a database that may still have slots, prepared transactions and sessions."""
    _release(admin, name)
    admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def _release(admin: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    admin.execute(
        "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots"
        " where database = %s and active_pid is not null",
        [name],
    )
    admin.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", [name])
    prepared = admin.execute("select gid from pg_prepared_xacts where database = %s", [name]).fetchall()
    if prepared:
        with psycopg.connect(admin.info.dsn, dbname=name, password=admin.info.password, autocommit=True) as inside:
            for (gid,) in prepared:
                inside.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))


@contextlib.contextmanager
def new_topic_prefix(kafka: str) -> Iterator[str]:
    """The fixture ``topic_prefix``, for longer than a test."""
    prefix = fresh_name()
    yield prefix
    admin = AdminClient({"bootstrap.servers": kafka})
    topics = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(prefix)]
    for deletion in admin.delete_topics(topics).values() if topics else ():
        with contextlib.suppress(KafkaException):  # gone already
            deletion.result()


@contextlib.contextmanager
def new_redis_url(redis_server: str) -> Iterator[str]:
    """The fixture ``redis_url``, for longer than a test."""
    base = redis_server.rsplit("/", 1)[0]
    with redis_client.Redis.from_url(redis_server) as registry:
        numbers = random.SystemRandom().sample(range(1, DATABASES), DATABASES - 1)
        number = next(n for n in numbers if registry.set(f"taken:{n}", "1", nx=True, ex=3600))
        with redis_client.Redis.from_url(f"{base}/{number}") as own:
            own.flushdb()
            yield f"{base}/{number}"
            own.flushdb()
        registry.delete(f"taken:{number}")


@contextlib.contextmanager
def new_index_prefix(opensearch: str) -> Iterator[str]:
    """The fixture ``index_prefix``, for longer than a test."""
    prefix = fresh_name()
    yield prefix
    found = requests.get(f"{opensearch}/{prefix}*", params={"expand_wildcards": "all"}, timeout=30).json()
    for index in found:
        requests.delete(f"{opensearch}/{quote(index, safe='')}", timeout=30)
