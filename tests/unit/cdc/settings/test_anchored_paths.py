"""Paths beside a settings file are found wherever cdc is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.settings.model import Settings
from sinks.contract.kinds import load_settings

FILE = """
name = "shop"
[source]
dsn = "host=h"
tables = ["public.orders"]
password = "file:secrets/source"
[log]
bootstrap_servers = "k:1"
client_secrets = {{ "sasl.password" = "file:secrets/kafka" }}
[spark]
checkpoint = "checkpoints"
[views.sales]
sql = "{path}sales.sql"
state = "view-state"
[sinks.warehouse]
kind = "delta"
path = "{path}warehouse"
storage_secrets = {{ key = "env:KEY" }}
[sinks.search]
kind = "opensearch"
url = "http://h:9200"
ca_certs = "{path}ca.pem"
password = "file:secrets/search"
[sinks.reports]
kind = "sql"
url = "sqlite:///{path}reports.db"
"""


def settings_in(folder: Path, path: str = "", environment: dict[str, str] | None = None) -> Settings:
    folder.mkdir()
    file = folder / "cdc.toml"
    file.write_text(FILE.format(path=path), encoding="utf-8")
    return load_settings(file, environment or {})


def shown(settings: Settings) -> list[str]:
    sinks = {name: sink.model_dump() for name, sink in settings.sinks.items()}
    views = settings.views["sales"].sql
    return [views, sinks["warehouse"]["path"], sinks["search"]["ca_certs"], sinks["reports"]["url"]]


def test_a_path_counts_from_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    settings = settings_in(tmp_path / "shop")
    place = tmp_path / "shop"
    names = ["sales.sql", "warehouse", "ca.pem"]
    assert shown(settings) == [*(str(place / name) for name in names), f"sqlite:///{place}/reports.db"]
    assert settings.source.password is not None
    assert settings.source.password.reference == f"file:{place}/secrets/source"
    assert settings.log.client_secrets["sasl.password"].reference == f"file:{place}/secrets/kafka"
    assert settings.sinks["search"].model_dump()["password"] == f"file:{place}/secrets/search"


def test_a_file_that_is_named_from_here_means_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = shown(settings_in(tmp_path / "shop"))
    monkeypatch.chdir(tmp_path)
    assert shown(load_settings(Path("shop/cdc.toml"), {})) == wanted


def test_a_path_from_the_root_stays(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "shop", "/srv/")
    assert shown(settings) == ["/srv/sales.sql", "/srv/warehouse", "/srv/ca.pem", "sqlite:////srv/reports.db"]


@pytest.mark.parametrize("path", ["s3://bucket/x/", "../other/"])
def test_a_place_elsewhere(tmp_path: Path, path: str) -> None:
    found = shown(settings_in(tmp_path / "shop", path))[1]
    assert found == (f"{path}warehouse" if "://" in path else str(tmp_path / "other" / "warehouse"))


def test_folders_of_the_process_count_from_its_own(tmp_path: Path) -> None:
    """A service has a folder that it may write, and its settings are in one that it may not."""
    settings = settings_in(tmp_path / "shop")
    assert (settings.spark.checkpoint, settings.views["sales"].state) == ("checkpoints", "view-state")


def test_a_variables_path_counts_from_where_it_was_set(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "shop", environment={"CDC_SINKS__WAREHOUSE__PATH": "mine"})
    assert shown(settings)[1] == "mine"
