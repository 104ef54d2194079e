"""What is put together, and what is checked before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cdc.cli.app import check_packages
from cdc.process.errors import UsageError
from cdc.record.topic_names import TableName
from cdc.settings.model import parse
from connectors.postgres.server.table_selection import kept
from sinks.contract.stores import sink_settings, spec_of

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


def test_a_sink_keeps_the_tables_it_names() -> None:
    orders, customers = TableName("public", "orders"), TableName("public", "customers")
    assert kept([orders, customers], sink_settings("cache", SETTINGS).tables) == [orders]
    assert kept([orders, customers], sink_settings("warehouse", SETTINGS).tables) == [orders, customers]


def test_an_unknown_sink_is_refused_with_the_likely_one() -> None:
    with pytest.raises(UsageError) as refused:
        spec_of("cahce", SETTINGS)
    assert refused.value.hint == "did you mean cache?"
