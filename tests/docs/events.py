"""The events that the source writes into the logs: their names and levels, read from its syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}


def events() -> dict[str, set[str]]:
    """Every event by its name, with the levels it is written at."""
    found: dict[str, set[str]] = {}
    for package in ("cdc", "connectors", "sinks", "snapshot", "spark"):
        for file in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for name, level in _written(tree):
                found.setdefault(name, set()).add(level)
    return found


def _written(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for level, event in _calls(tree):
        if isinstance(event, ast.Constant):
            yield str(event.value), level
    # A method that takes the event's name writes those that it is called with.
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = {argument.arg for argument in function.args.args}
        for level, event in _calls(function):
            if isinstance(event, ast.Name) and event.id in names:
                yield from ((name, level) for name in _given(tree, function.name))


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Calls of a logger: ``log.info(event, ...)``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[event, *_]):
                if level in _LEVELS:
                    yield _LEVELS[level], event


def _given(tree: ast.Module, function: str) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str() as event), *_]):
                if name == function:
                    yield event
