"""The names of a record stand in one file: nobody else spells them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cdc.wire import format as wire

ROOT = Path(__file__).parents[4]
PRODUCT = ("cdc", "connectors", "sinks", "snapshot", "spark")
WORDS = {*wire.HEADERS, wire.BEFORE, wire.AFTER}
"""Whole literals; other names are found inside of longer ones, too."""
PIECES = re.compile(
    "|".join(
        [
            *(re.escape(name) for name in (wire.TRUNCATE_KEY, wire.SWEEP_KEY, *wire.KEY_HEADERS, wire.REASON_HEADER)),
            re.escape(wire.UNAVAILABLE),
            r'"(?:before|after|source|pos)":',
        ]
    )
)
ELSEWHERE = {
    ("cdc/figures/declared_figures.py", "op"): "the label of a metric",
    ("sinks/iceberg/iceberg_columns.py", "pos"): "a column of Iceberg's files of deletes",
    ("cdc/settings/stream_settings.py", "after"): "when a model is validated",
    ("sinks/delta/delta_kind.py", "after"): "when a model is validated",
    ("sinks/iceberg/iceberg_kind.py", "after"): "when a model is validated",
    ("sinks/search/search_kind.py", "after"): "when a model is validated",
    ("cdc/settings/event_settings.py", "pos"): "names that a setting may not have",
    ("cdc/settings/event_settings.py", "op"): "names that a setting may not have",
    ("cdc/settings/event_settings.py", "ver"): "names that a setting may not have",
}


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings and bytes of the code, with their lines: no docstrings, and no names of slots."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["__slots__"]:
            skipped |= {id(inner) for inner in ast.walk(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skipped:
            if isinstance(node.value, str):
                yield node.lineno, node.value
            elif isinstance(node.value, bytes):
                yield node.lineno, node.value.decode(errors="replace")


def spelled(path: Path) -> Iterator[tuple[str, str]]:
    file = path.relative_to(ROOT).as_posix()
    code = path.read_text(encoding="utf-8")
    plain = code.replace("\\", "").replace("'", '"')
    if not PIECES.search(plain) and not any(f'"{word}"' in plain for word in WORDS):
        return
    for _, text in literals(ast.parse(code)):
        if (text in WORDS or PIECES.search(text)) and (file, text) not in ELSEWHERE:
            yield file, text


def test_nobody_else_spells_a_name_of_a_record() -> None:
    paths = [path for package in PRODUCT for path in (ROOT / package).rglob("*.py")]
    outside = [path for path in paths if not path.is_relative_to(ROOT / "cdc" / "wire")]
    assert len(outside) > 200
    assert [found for path in outside for found in spelled(path)] == []


def test_the_file_of_names_is_found_by_the_same_search() -> None:
    found = {text for _, text in spelled(ROOT / "cdc" / "wire" / "format.py")}
    assert found >= {*WORDS, *wire.KEY_HEADERS, wire.SWEEP_KEY, wire.TRUNCATE_KEY, wire.REASON_HEADER}


def test_every_exception_is_still_needed() -> None:
    for (file, text), why in ELSEWHERE.items():
        held = [word for _, word in literals(ast.parse((ROOT / file).read_text(encoding="utf-8")))]
        assert text in held, f"{file} spells {text} no more: {why}"
