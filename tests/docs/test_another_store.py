"""The walk-through of another store is the store that the tests use."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sinks.contract.kinds import parse_settings
from tests.conftest import OTHER_STORE

MANUAL = (Path(__file__).parents[2] / "sinks" / "README.md").read_text(encoding="utf-8")
STORE = OTHER_STORE / "folderstore"
PLACES = {
    "opener": STORE / "folder_store.py",
    "kind": STORE / "folder_kind.py",
    "entry_points": OTHER_STORE / "folderstore-1.0.dist-info" / "entry_points.txt",
}


def shown(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```\n<!-- /{name} -->", MANUAL, re.DOTALL)
    assert found is not None, name
    return found[1]


@pytest.mark.parametrize("name", PLACES)
def test_each_step_is_in_the_store_as_it_is_shown(name: str) -> None:
    assert shown(name) in PLACES[name].read_text(encoding="utf-8")


def test_the_section_that_is_shown_is_accepted(other_store: Path) -> None:
    document = {"name": "shop", "source": {"dsn": "host=h", "tables": ["a.b"]}, "log": {"bootstrap_servers": "k:1"}}
    settings = parse_settings({**document, **tomllib.loads(shown("section"))})
    assert settings.sinks["files"].options() == {"path": "files"}
