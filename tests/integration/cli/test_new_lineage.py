"""``cdc init --new-epoch`` onto another server, and the tokens that applications took on the former one (H5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from cdc.process.errors import Exit
from cdc.read import Freshness, NotShown, Token, token
from cdc.stack.local import free_ports
from tests.fresh import new_database
from tests.integration.cli.pipeline import Pipeline, assert_refused
from tests.processes import ProcessStack
from tests.programs import Spawn
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
TABLE = "create table if not exists orders (id int primary key, note text)"


@pytest.fixture
def other_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database of another server: as what a dump was restored into."""
    stack = ProcessStack(tmp_path_factory.mktemp("other"))
    stack.start(ports=free_ports(), durable=False)
    try:
        with new_database(stack.ensure("postgres")["postgres"]["dsn"]) as dsn:
            yield dsn
    finally:
        stack.wipe()


def written(pipeline: Pipeline, number: int) -> Token:
    """A row, and the token behind its commit."""
    with psycopg.connect(pipeline.dsn) as connection:
        connection.execute(f"insert into orders values ({number}, 'x')")
        connection.commit()
        return token(connection)


@contextmanager
def following(pipeline: Pipeline, spawn: Spawn) -> Iterator[None]:
    """While capture and the store follow."""
    programs = [spawn("cdc", "--config", pipeline.config, name) for name in ("run", "sink")]
    yield
    for program in programs:
        assert program.terminate(90) == Exit.OK, program.stderr


def waited(pipeline: Pipeline, wanted: Token, timeout_s: int) -> int:
    return pipeline.cdc("wait", "cache", str(wanted), "--timeout", str(timeout_s), timeout_s=120).returncode


@pytest.mark.long
def test_h5_a_token_of_the_former_server_is_never_shown(
    pipeline: Pipeline, spawn: Spawn, redis_url: str, other_server: str
) -> None:
    pipeline.document["sinks"] = {"cache": {"kind": "redis", "url": redis_url}}
    pipeline.document["spark"]["http_address"] = ""
    pipeline.document["capture"]["http_address"] = ""
    pipeline.sql(TABLE)
    pipeline.begin()
    with following(pipeline, spawn):
        former = written(pipeline, 1)
        assert waited(pipeline, former, 90) == Exit.OK

    pipeline.document["source"]["dsn"] = other_server
    # Its WAL is further than the former server's: by the LSN alone the token would be shown.
    pipeline.sql(TABLE, "insert into orders select g, repeat('x', 500) from generate_series(1000, 40000) g")
    assert_refused(pipeline.cdc("run"), Exit.IDENTITY, "--new-epoch")
    pipeline.good("init", "--new-epoch", "--yes")
    pipeline.good("snapshot")
    with following(pipeline, spawn):
        wait_until(lambda: waited(pipeline, written_once(pipeline), 60) == Exit.OK, 120)
        done = pipeline.cdc("wait", "cache", str(former), "--timeout", "20", timeout_s=120)
        assert_refused(done, Exit.DIFFERENCE, "cache shows server", f"the token is of {former.system}/")
        reader = Freshness("redis", pipeline.document["name"], url=redis_url)
        with reader as freshness, pytest.raises(NotShown, match="shows server"):
            freshness.wait(former, timeout_s=20)


def written_once(pipeline: Pipeline) -> Token:
    with psycopg.connect(pipeline.dsn) as connection:
        connection.execute("insert into orders values (2, 'new') on conflict (id) do update set note = 'again'")
        connection.commit()
        return token(connection)
