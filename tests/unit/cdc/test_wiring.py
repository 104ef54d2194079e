"""What is put together, and what is checked before."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc.errors import ConfigError, UsageError
from cdc.schema import TableSchema
from cdc.settings import parse
from cdc.siblings import check_packages
from cdc.topic import TableName
from cdc.wiring.rebuild import WholeGenerations
from cdc.wiring.shares import require_shares
from cdc.wiring.sinks import build_sinks
from connectors.postgres.selection import kept
from sinks.sections import parse_settings
from sinks.stores import sink_settings, spec_of

SETTINGS = parse(
    {
        "name": "shop",
        "source": {"dsn": "host=127.0.0.1", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "k:1", "replay_window": "2d"},
        "sinks": {
            "cache": {"kind": "redis", "url": "redis://h/0", "password": "env:OPS_CANARY", "tables": ["public.o*"]},
            "warehouse": {
                "kind": "delta",
                "path": "s3://b/w",
                "prefix": "other",
                "storage_options": {"region": "x"},
                "storage_secrets": {"secret_key": "env:OPS_CANARY"},
            },
        },
    }
)


def test_the_packages_stand_beside_each_other() -> None:
    check_packages()


def test_a_folder_that_hides_a_package_is_named(tmp_path: Path) -> None:
    hiding = tmp_path / "connectors"
    hiding.mkdir()
    (hiding / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "cdc", "config", "example"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 78
    assert f"another package called connectors, in {hiding}, hides headrace's own" in done.stderr
    assert "hint: start cdc from another folder" in done.stderr


def test_a_sink_is_plain_data_with_its_secrets_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_CANARY", "canary")
    cache, warehouse = spec_of("cache", SETTINGS), spec_of("warehouse", SETTINGS, parallel=True)
    assert (cache.kind, cache.prefix, cache.options["url"], cache.parallel) == ("redis", "shop", "redis://h/0", False)
    assert (warehouse.kind, warehouse.prefix, warehouse.parallel) == ("delta", "other", True)
    assert cache.options["replay_window_s"] == 2 * 86_400
    assert (cache.secrets, warehouse.secrets) == ({"password": "canary"}, {"storage.secret_key": "canary"})
    assert "canary" not in repr(cache) + repr(warehouse)


def test_h231_where_we_capture_records_bear_their_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_CANARY", "canary")
    with socket.create_server(("127.0.0.1", 0)) as broker:
        reached = SETTINGS.log.model_copy(update={"bootstrap_servers": f"127.0.0.1:{broker.getsockname()[1]}"})
        assert build_sinks(SETTINGS.model_copy(update={"log": reached}), ["cache"]).ours


def test_a_sink_keeps_the_tables_it_names() -> None:
    orders, customers = TableName("public", "orders"), TableName("public", "customers")
    assert kept([orders, customers], sink_settings("cache", SETTINGS).tables) == [orders]
    assert kept([orders, customers], sink_settings("warehouse", SETTINGS).tables) == [orders, customers]


def test_an_unknown_sink_is_refused_with_the_likely_one() -> None:
    with pytest.raises(UsageError) as refused:
        spec_of("cahce", SETTINGS)
    assert refused.value.hint == "did you mean cache?"


def test_stores_that_one_application_feeds_alone(other_store: Path) -> None:
    document: dict[str, Any] = {
        "name": "shop",
        "source": {"dsn": "host=h", "tables": ["a.b"]},
        "log": {"bootstrap_servers": "k:1"},
        "sinks": {
            "cache": {"kind": "redis", "url": "redis://h/0"},
            "lite": {"kind": "sql", "url": "sqlite:///reports.db"},
            "reports": {"kind": "sql", "url": "postgresql+psycopg://cdc@h/reports"},
            "files": {"kind": "folder", "path": "/files"},
        },
    }
    settings = parse_settings(document)
    require_shares(settings, ["cache", "reports"])
    with pytest.raises(ConfigError, match="the store of lite takes one application alone: SQLite takes one writer"):
        require_shares(settings, ["cache", "lite"])
    with pytest.raises(ConfigError, match="the store of files is of kind folder, and takes one application alone"):
        require_shares(settings, ["files"])
    connected = parse_settings({**document, "source": {**document["source"], "kind": "debezium"}})
    with pytest.raises(ConfigError, match="topics that Debezium fills"):
        require_shares(connected, ["cache"])


def test_a_rebuild_ends_where_the_store_was_shared_meanwhile() -> None:
    done: list[str] = []

    class Generations:
        """Notes what it is asked for. Implements :class:`cdc.rebuild.ports.RebuildGenerations`."""

        def in_use(self) -> int:
            return 1

        def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
            done.append(f"keep {number}")

        def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
            done.append(f"switch {number}")

        def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
            done.append(f"discard {number}")

    def shared() -> None:
        raise ConfigError("the store of cache is fed in 3 shares")

    whole, fed = WholeGenerations(Generations(), lambda: None), WholeGenerations(Generations(), shared)
    whole.keep(1, [])
    whole.switch(2, [])
    for step in (fed.keep, fed.switch):
        with pytest.raises(ConfigError, match="fed in 3 shares"):
            step(3, [])
    fed.discard(3, [])
    assert (fed.in_use(), done) == (1, ["keep 1", "switch 2", "discard 3"])
