"""A Kafka that takes tokens: capture, the commands and the sinks log in by a provider, or by what a command prints."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis as redis_client

from cdc.cli.app import run
from cdc.process.errors import Exit
from tests.bearer import CLIENT, SECRET, BearerKafka, Provider, bearer_kafka
from tests.fresh import fresh_name, new_database, new_redis_url
from tests.programs import RunCdc, Spawn
from tests.secured import ADMIN, password
from tests.settings_file import write_settings
from tests.waiting import wait_until

TOKEN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BearerKafka, Provider]]:
    with bearer_kafka(tmp_path_factory.mktemp("bearer")) as both:
        yield both


@pytest.fixture
def document(
    servers: tuple[BearerKafka, Provider], postgres: str, redis_server: str, tmp_path: Path
) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        dsn = stack.enter_context(new_database(postgres))
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table orders (id int primary key); insert into orders values (1), (2)")
        yield {
            "name": fresh_name(),
            "source": {"dsn": dsn, "tables": ["public.orders"]},
            "log": {"bootstrap_servers": servers[0].address, "partitions": 1},
            "capture": {"http_address": ""},
            "sinks": {"cache": {"kind": "redis", "url": stack.enter_context(new_redis_url(redis_server))}},
            "spark": {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""},
        }


def fills_the_cache(document: dict[str, Any], folder: Path, spawn: Spawn, run_cdc: RunCdc) -> None:
    config = str(write_settings(folder, document))
    for command in (("check",), ("init",), ("snapshot", "--workers", "1")):
        # A process of its own: the workers of a snapshot have the environment of the first one that made any.
        done = run_cdc("--config", config, *command, cwd=folder)
        assert done.returncode == Exit.OK, done.stderr
    capture = spawn("cdc", "--config", config, "run")
    wait_until(lambda: '"streaming"' in capture.stderr, 60, lambda: capture.stderr)
    assert capture.terminate() == Exit.OK
    done = run_cdc("--config", config, "sink", "cache", "--until-caught-up", cwd=folder)
    assert done.returncode == Exit.OK, done.stderr
    with redis_client.Redis.from_url(document["sinks"]["cache"]["url"]) as cache:
        keys = [key for key in cache.scan_iter() if b"public.orders" in key]
    assert len(keys) >= 2, done.stderr


@pytest.mark.slow
def test_x8_a_provider_of_tokens_serves_capture_and_sinks(
    servers: tuple[BearerKafka, Provider],
    document: dict[str, Any],
    tmp_path: Path,
    spawn: Spawn,
    run_cdc: RunCdc,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    provider = servers[1]
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    document["log"] |= {
        "client": TOKEN
        | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        },
        "client_secrets": {"sasl.oauthbearer.client.secret": "env:CLIENT_SECRET"},
    }
    fills_the_cache(document, tmp_path, spawn, run_cdc)
    assert provider.asked > 2


@pytest.mark.slow
def test_x8_a_token_by_command_and_a_login_of_java(
    servers: tuple[BearerKafka, Provider],
    document: dict[str, Any],
    tmp_path: Path,
    spawn: Spawn,
    run_cdc: RunCdc,
    capfd: pytest.CaptureFixture[str],
) -> None:
    token = tmp_path / "token"
    token.write_text(servers[1].token() + "\n", encoding="utf-8")
    prints = f"import pathlib; print(pathlib.Path({str(token)!r}).read_text())"
    document["log"] |= {
        "client": TOKEN,
        "client_secrets": {"sasl.oauthbearer.token": f"command:{shlex.join([sys.executable, '-c', prints])}"},
    }
    config = str(write_settings(tmp_path, document))
    assert run(["--config", config, "sink", "cache", "--until-caught-up"]) == Exit.CONFIG
    assert "OAUTHBEARER by a token of a command does not reach Java" in capfd.readouterr().err
    # As the login of MSK, which Java has a way of its own for.
    login = f'{PLAIN} username="{ADMIN}" password="{password(ADMIN)}";'
    document["spark"]["kafka"] = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    fills_the_cache(document, tmp_path, spawn, run_cdc)
    token.unlink()
    capfd.readouterr()
    assert run(["--config", config, "status"]) == Exit.CONFIG
    said = capfd.readouterr().err
    assert "for a secret ends with exit code 1" in said
