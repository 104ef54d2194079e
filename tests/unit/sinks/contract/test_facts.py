"""What ``cdc check`` says where a store's address is another server's, or a folder cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy

from cdc.checks.findings import Level
from cdc.process.errors import ConfigError, SinkError
from cdc.record.server_facts import StoreFacts
from sinks.contract.attempt_limits import looking
from sinks.contract.kinds import kind_named
from sinks.contract.sink_spec import SinkSpec, attribute
from sinks.sql.sql_client import connect_args
from tests.strangers import Answer, closed, lines, stranger, web

Look = Callable[[int], StoreFacts]
ALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}


def ask(kind: str, **options: str) -> StoreFacts:
    found = kind_named(kind)
    facts: StoreFacts = attribute(found.probe, kind)(
        SinkSpec(kind=kind, opener=found.opener, prefix="shop", options=options)
    )
    return facts


def search(port: int) -> StoreFacts:
    return ask("opensearch", url=f"http://127.0.0.1:{port}")


def secure_search(port: int) -> StoreFacts:
    return ask("opensearch", url=f"https://127.0.0.1:{port}")


def cache(port: int) -> StoreFacts:
    return ask("redis", url=f"redis://127.0.0.1:{port}/0")


def reports(port: int) -> StoreFacts:
    return ask("sql", url=f"postgresql+psycopg://cdc@127.0.0.1:{port}/x")


@pytest.mark.parametrize(
    ("look", "answer", "sentence"),
    [
        (search, closed, "does not speak HTTP"),
        (search, lines, "does not speak HTTP"),
        (secure_search, web, "does not speak TLS"),
        (cache, web, "does not speak Redis's protocol"),
        (cache, closed, "cannot reach Redis"),
        (reports, closed, "cannot reach the database"),
        (reports, web, "cannot reach the database"),
    ],
)
def test_h135_another_server_at_a_stores_address(look: Look, answer: Answer, sentence: str) -> None:
    with stranger(answer) as port, pytest.raises((ConfigError, SinkError)) as refused:
        look(port)
    assert sentence in refused.value.message
    assert f"127.0.0.1:{port}" in refused.value.message
    assert "url" in refused.value.hint
    assert not any(word in refused.value.message for word in ("Error(", "Exception", "Traceback"))


def test_a_folder_that_is_a_file_or_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(ConfigError, match="is a file"):
            ask("delta", path=str(path))
    # Not by rights: nobody makes a folder there, root neither.
    with pytest.raises(ConfigError, match="the folder /proc/nope cannot be written: ") as refused:
        ask("delta", path="/proc/nope")
    assert "/proc" in refused.value.hint


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    assert ask("delta", path=str(tmp_path / "a" / "b")).version == str(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_of_a_warehouse_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kind = kind_named("delta")
    (found,) = [each for each in kind.judged("reports", ask("delta", path="warehouse")) if each.check == "path"]
    assert found.level is Level.WARN
    assert "the path warehouse is relative" in found.message
    whole = kind.judged("reports", ask("delta", path=str(tmp_path / "warehouse")))
    assert [each.check for each in whole] == ["reachable"]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql+psycopg://cdc@db/x", {"connect_timeout": 5, **ALIVE}),
        ("mysql+pymysql://cdc@db/x", {"connect_timeout": 5}),
        ("postgresql+psycopg://cdc@db/x?connect_timeout=30", ALIVE),
        ("postgresql+psycopg2://cdc@db/x?keepalives_idle=60", {"connect_timeout": 5, **ALIVE, "keepalives_idle": None}),
        ("sqlite:///x", {}),
    ],
)
def test_a_driver_is_told_how_long_to_wait_unless_the_url_says(url: str, told: dict[str, int | None]) -> None:
    wanted = {name: value for name, value in told.items() if value is not None}
    assert connect_args(sqlalchemy.make_url(url)) == wanted
    with looking():
        of_a_look = {"tcp_user_timeout": 10_000} if url.startswith("postgresql") else {}
        assert connect_args(sqlalchemy.make_url(url)) == wanted | of_a_look
