"""Kinds of stores: ours, those of installed packages, and packages that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc.process.errors import ConfigError
from cdc.settings.model import parse
from sinks.contract.kinds import (
    InstalledKinds,
    beside,
    find_kind,
    kind_named,
    kinds_of_ours,
    names,
    parse_settings,
    spec_for,
)
from sinks.contract.stores import spec_of


def document(**sink: Any) -> dict[str, Any]:
    return {
        "name": "shop",
        "source": {"dsn": "host=h", "tables": ["a.b"]},
        "log": {"bootstrap_servers": "k:1"},
        "sinks": {"files": sink},
    }


def install(folder: Path, package: str, points: str, code: str = "") -> None:
    """An installed package, as pip leaves it."""
    (folder / f"{package}.py").write_text(code, encoding="utf-8")
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[headrace.sinks]\n{points}\n", encoding="utf-8")


def test_ours_come_without_any_package() -> None:
    assert names()[:5] == [kind.name for kind in kinds_of_ours()] == ["redis", "opensearch", "delta", "sql", "iceberg"]
    assert find_kind("folder") is None


def test_an_installed_package_brings_a_kind(other_store: Path) -> None:
    settings = parse_settings(document(kind="folder", path="/files"))
    spec = spec_of("files", settings)
    assert (spec.kind, spec.opener) == ("folder", "folderstore.folder_store:open_folder")
    assert (spec.prefix, spec.options["path"]) == ("shop", "/files")
    assert names()[-1] == "folder"
    assert beside(spec, 2).options["generation"] == 2


def test_its_settings_are_checked_like_ours(other_store: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings(document(kind="folder", paht="x"))
    assert refused.value.message == "the settings: unknown setting sinks.files.paht"
    assert refused.value.hint == 'did you mean "path"?'
    with pytest.raises(ConfigError) as missing:
        parse_settings(document(kind="folder"))
    assert missing.value.message == "the settings: sinks.files.path is missing"
    assert missing.value.hint == "a sink of kind folder is described in the README of folderstore"
    with pytest.raises(ConfigError) as unknown:
        parse_settings(document(kind="floder"))
    assert unknown.value.hint == 'did you mean kind = "folder"?'


def test_a_section_that_nobody_checked_is_checked_when_used() -> None:
    settings = parse(document(kind="redis", ulr="redis://:canary@h"))
    assert "canary" not in repr(settings)
    with pytest.raises(ConfigError, match=r"unknown setting sinks\.files\.ulr"):
        spec_of("files", settings)


@pytest.mark.parametrize(
    ("points", "code", "sentence"),
    [
        ("mine = brings_mine:KIND", "import nothing_of_this_name", "ModuleNotFoundError"),
        ("mine = brings_mine:KIND", "KIND = 3", "brings_mine:KIND is no SinkKind"),
        ("mine = brings_mine:KIND", "from sinks.cache.cache_kind import KIND", "the kind calls itself redis"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: str, code: str, sentence: str
) -> None:
    package = f"brings_mine_{len(code)}"
    install(tmp_path, package, points.replace("brings_mine", package), code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError) as refused:
        kind_named("mine")
    assert f"the package {package} brings a kind of sink called mine" in refused.value.message
    assert sentence.replace("brings_mine", package) in refused.value.message


def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "one_store", "mine = one_store:KIND")
    install(tmp_path, "other_store", "mine = other_store:KIND")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="two packages bring a kind of sink called mine: one_store and other_store"):
        find_kind("mine")


def test_a_name_of_ours_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "bad_store", "redis = bad_store:KIND", "raise RuntimeError('never imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert kind_named("redis").opener == "sinks.cache.cache_store:open_cache"
    assert InstalledKinds().manual("redis") == ""


def test_a_kind_that_there_is_not_gets_the_likely_one() -> None:
    with pytest.raises(ConfigError) as refused:
        spec_for("reddis", prefix="shop", options={})
    assert refused.value.hint == "did you mean redis?"
