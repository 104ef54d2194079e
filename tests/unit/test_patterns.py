"""Every regular expression of the product meets strings made against it, and its work grows with their length alone."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.steps import Steps, TooMany

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "sinks", "snapshot", "spark")
MADE_AT_RUN = {
    "cdc/process/untrusted_text.py": "test_foreign.py",
    "cdc/record/topic_names.py": "test_selection.py",
    "cdc/views/text_values.py": "test_like_steps.py",
    "connectors/debezium/databases.py": "test_tables.py",
    "connectors/postgres/encoding/compiled.py": "test_row_steps.py",
    "connectors/postgres/encoding/row_reading.py": "test_row_steps.py",
    "connectors/postgres/server/table_selection.py": "test_selection.py",
    "connectors/postgres/encoding/wire_values.py": "test_row_steps.py",
}
"""Files that put expressions together from what they are given, and where those are tested."""
_FUNCTIONS = {"compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer"}
_ANYWHERE = {"search", "sub", "split", "findall", "finditer"}
_SHORT, _LONG = 24, 96
_ALLOWED = 8
"""Four times the text may take so many times the steps: twice what is linear, half of what is quadratic."""


class Found(NamedTuple):
    """``anywhere``: it is looked for in a text; else it stands at a place, or is all of it."""

    where: str
    pattern: Any
    anywhere: bool


def files() -> Iterator[str]:
    """Those that have expressions."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if "import re\n" in source or "pattern=" in source:
                yield str(path.relative_to(ROOT))


@cache
def expressions(name: str) -> tuple[tuple[Found, ...], bool]:
    """Those of a file, and whether it has some that are no constants."""
    source = (ROOT / name).read_text(encoding="utf-8")
    module = importlib.import_module(name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    found: list[Found] = []
    made = False
    for node in ast.walk(ast.parse(source)):
        try:
            found += _of(node, name, vars(module), source)
        except NameError:
            made = True
    return tuple(found), made


def _of(node: ast.AST, name: str, names: dict[str, Any], source: str) -> Iterator[Found]:
    if not isinstance(node, ast.Call):
        return
    for keyword in node.keywords:
        if keyword.arg == "pattern" and isinstance(keyword.value, ast.Constant):
            yield Found(f"{name}:{node.lineno}", re.compile(keyword.value.value), anywhere=False)
    of = node.func
    if not (isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name) and of.value.id == "re"):
        return
    if of.attr not in _FUNCTIONS:
        return
    arguments = [node.args[0], *(node.args[1:] if of.attr == "compile" else [])]
    flags = [keyword.value for keyword in node.keywords if keyword.arg == "flags"]
    pattern = re.compile(*(_value(one, names) for one in [*arguments, *flags]))
    yield Found(f"{name}:{node.lineno}", pattern, of.attr in _ANYWHERE or _searched(node, source))


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<pattern>", "eval"), dict(names))


def _searched(node: ast.Call, source: str) -> bool:
    """Whether what ``node`` compiles is looked for anywhere: by a method of its own, or of its name."""
    line = source.splitlines()[(node.end_lineno or node.lineno) - 1]
    own = line[node.end_col_offset or 0 :].removeprefix(".").split("(")[0].strip()
    name = source.splitlines()[node.lineno - 1].split("=")[0].split(":")[0].strip()
    return own in _ANYWHERE or any(f"{name}.{method}" in source for method in _ANYWHERE)


def attacks(steps: Steps, length: int) -> Iterator[str]:
    """Texts of about ``length`` that repeat what the pattern is made for, or one or two of its own characters."""
    begun = [steps.example[:size] for size in range(1, len(steps.example) + 1)][:_SHORT]
    for pump in dict.fromkeys([*begun, *("".join(pair) for pair in itertools.product(_few(steps.alphabet), repeat=2))]):
        for tail in ("", "\x01"):
            yield pump * (length // len(pump)) + tail
            yield steps.example[0:1] + pump * (length // len(pump)) + tail


def _few(codes: list[int]) -> list[str]:
    """Those first that stand alone, not in a range."""
    alone = [code for code in codes if not {code - 1, code + 1} <= set(codes)]
    return [chr(code) for code in [*alone, *(code for code in codes if code not in alone)][:6]]


def worst(found: Found, length: int, limit: int) -> int:
    steps = Steps(found.pattern)
    most = 0
    for attack in attacks(steps, length):
        text = attack.encode("latin-1", "replace") if isinstance(found.pattern.pattern, bytes) else attack
        taken = steps.search(text, limit=limit) if found.anywhere else steps.match(text, whole=True, limit=limit)[1]
        most = max(most, taken)
    return most


def test_expressions_that_are_made_at_run_are_known() -> None:
    assert {name for name in files() if expressions(name)[1]} == MADE_AT_RUN.keys()


def test_h94_an_attack_finds_what_is_quadratic_and_what_is_worse() -> None:
    assert grows(Found("", re.compile(r"(\w+://)x"), anywhere=True))
    assert grows(Found("", re.compile(r"\$\{[a-z]+:[^}]*\}"), anywhere=True))
    assert not grows(Found("", re.compile(r"\$\{[a-z]+:[^{}]*\}"), anywhere=True))
    assert grows(Found("", re.compile(r"(a*)(a*)b"), anywhere=False))
    assert grows(Found("", re.compile(r"(?:a|aa)+b"), anywhere=False))


def grows(found: Found) -> bool:
    try:
        short = worst(found, _SHORT, 200_000)
        return worst(found, _LONG, _ALLOWED * short) > _ALLOWED * short
    except TooMany:
        return True


@pytest.mark.parametrize("name", [*files()])
def test_h94_no_expression_takes_more_than_linear_time(name: str) -> None:
    assert [found for found in expressions(name)[0] if grows(found)] == []
