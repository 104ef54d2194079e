"""A name stands once, a file holds one idea, and what is public says what it promises."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES, WIRING_LINES = 400, 975
TEST_NAME_CHARACTERS = 60
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
CODE = (".py", ".sql", ".lua")
IN_EACH_FEATURE = ("__init__", "__main__", "ports", "rules", "run")
"""A feature is its rules, its ports and a run over them."""
NAMED_AFTER = (
    ("cdc", "cli"),
    ("cdc", "wiring"),
    ("cdc", "stack"),
    ("cdc", "checks"),
    ("connectors", "operate"),
    ("spark", "jobs"),
)
"""Folders whose modules are named after something else: a command, a feature, a server."""


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def test_a_class_name_stands_once() -> None:
    """Those inside a class or a function too."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for name in re.findall(r"^ *class (\w+)[:(\[]", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(path.relative_to(ROOT).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_a_module_name_stands_once_but_in_parallel_folders() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        folder = path.relative_to(ROOT).parts[:-1]
        if path.stem not in IN_EACH_FEATURE and folder[:2] not in NAMED_AFTER:
            places[path.stem].append(path.relative_to(ROOT).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1}


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_file_is_longer_than_an_idea() -> None:
    files = [*modules(), *(ROOT / "tests").rglob("*.py")]
    assert not [path.relative_to(ROOT).as_posix() for path in files if _lines(path) > FILE_LINES]


def test_a_comment_gives_its_reason_itself() -> None:
    """The numbers of hazards stand in the names of tests."""
    files = [
        path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.suffix in (".py", ".sql", ".lua")
    ]
    numbered = re.compile(r"\b(?:H\d{1,3}|V\d{1,2})\b")
    assert [path.name for path in files if numbered.search(path.read_text(encoding="utf-8"))] == []


def test_the_wiring_only_builds() -> None:
    assert sum(map(_lines, (ROOT / "cdc" / "wiring").rglob("*.py"))) <= WIRING_LINES


def test_a_tests_name_is_one_short_sentence() -> None:
    long = [
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"\bdef (test_\w+)", path.read_text(encoding="utf-8"))
        if len(name) > TEST_NAME_CHARACTERS
    ]
    assert not long
