"""A name stands once: whoever searches for a class or a module finds one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
IN_EACH_FEATURE = ("__init__", "__main__", "ports", "rules", "run")
"""A feature is its rules, its ports and a run over them."""
NAMED_AFTER = (
    ("cdc", "cli"),
    ("cdc", "wiring"),
    ("cdc", "stack"),
    ("cdc", "checks"),
    ("cdc", "testing"),
    ("spark", "jobs"),
)
"""Folders whose modules are named after something else: a command, a feature, a server, the part that is doubled."""


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def test_a_class_name_stands_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_a_module_name_stands_once_but_for_folders_that_repeat_others() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        folder = path.relative_to(ROOT).parts[:-1]
        if path.stem not in IN_EACH_FEATURE and folder[:2] not in NAMED_AFTER:
            places[path.stem].append(path.relative_to(ROOT).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1}
