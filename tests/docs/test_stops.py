"""The manual's page on what stops everything, and the errors that do: neither has one that the other lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import cdc.process.errors
from cdc.process.errors import CdcError, Exit

ROOT = Path(__file__).parents[2]
ROOMS = ("connectors/postgres", "connectors/session", "connectors/kafka")
OF_COMMANDS = ("publication.py", "cut_reader.py")
"""Modules whose errors end ``cdc init`` and ``cdc verify``, and never ``cdc run``."""
OF_SINKS = ("record_reader.py",)
ENDING = ("SlotError", "IdentityError", "TopicError", "ActiveError", "PoisonError", "ConfigError")
"""Classes that no new session mends. A DecodeError is one row of the page, whatever its words."""
SHORTEST = 8
COMMON = ("the slot", "the table", "the topic", "the publication", "values of")
"""Subjects of many sentences: on the page they stand beside what tells them apart."""


class Ending(NamedTuple):
    """An error as the code raises it: where, its exit code, and the words of its message that are always the same."""

    where: str
    code: int
    words: tuple[str, ...]


def test_every_error_that_ends_capture_is_on_the_page() -> None:
    for ending in endings():
        rows = [row for row in quoted() if any(matches(words, ending) for words in row[1] if words not in COMMON)]
        assert rows, f"{ending.where}: {ending.words} is not among what stops everything"
        assert any(code == ending.code for code, _ in rows), f"{ending.where}: the page gives it another exit code"


def test_every_sentence_on_the_page_is_one_of_the_code() -> None:
    for code, sentences in quoted():
        for words in sentences:
            assert any(matches(words, ending) and ending.code == code for ending in endings()), f"{code}: {words}"


def test_every_exit_code_that_a_supervisor_sees_is_on_the_page() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page(), re.MULTILINE)} | {int(Exit.BUG)}
    missing = {int(code) for code in Exit if code > Exit.USAGE} - told - {int(Exit.UNAVAILABLE)}
    assert not missing


def page() -> str:
    text = (ROOT / "connectors" / "postgres" / "README.md").read_text(encoding="utf-8")
    return text.partition("## What still stops everything\n")[2].partition("\n## ")[0]


@cache
def quoted() -> list[tuple[int, list[str]]]:
    """The page's rows: an exit code, and what is quoted of its sentences. The settings' paragraph is one of 78."""
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", page(), re.MULTILINE)
    settings = page().partition("At the start alone")[2]
    found = [(int(code), re.findall(r"`([^`]+)`", said)) for code, said in rows]
    return [*found, (int(Exit.CONFIG), re.findall(r"`([^`]+)`", settings))]


def matches(words: str, ending: Ending) -> bool:
    return any(words.strip() in said for said in ending.words)


@cache
def endings() -> list[Ending]:
    return [
        ending
        for room in ROOMS
        for file in sorted((ROOT / room).rglob("*.py"))
        if file.name not in (*OF_COMMANDS, *OF_SINKS)
        for ending in endings_in(file)
    ]


def endings_in(file: Path) -> Iterator[Ending]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ENDING and node.args:
            words = constants(node.args[0])
            if any(len(said.strip()) >= SHORTEST for said in words):
                kind: type[CdcError] = getattr(cdc.process.errors, node.func.id)
                yield Ending(f"{file.relative_to(ROOT)}:{node.lineno}", int(kind.exit), words)


def constants(message: ast.expr) -> tuple[str, ...]:
    """A message's constant parts."""
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    return tuple(part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))
