"""The examples in docstrings are true: each is run, in every module that has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "sinks", "snapshot", "spark")
MODULES = [
    "tests.code_size",
    *sorted(
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if ">>> " in path.read_text()
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted, name
    assert not found.failed, name
