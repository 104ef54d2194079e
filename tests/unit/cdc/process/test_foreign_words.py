"""Whatever error is raised, others' words in it were cleaned where they came in; searched in the code itself."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cdc.cli.terminal import report
from cdc.process import untrusted_text as foreign
from cdc.process.errors import CdcError, Exit
from cdc.process.untrusted_text import quoted

ROOT = Path(__file__).parents[4]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
CLEANERS = {
    "quoted", "brief", "_brief", "hide", "first_line", "_first_line", "kind_of", "sqlstate", "_reason", "_one_line",
    "type", "isinstance", "log_error", "_path",
}  # fmt: skip
NO_WORDS = {
    "strerror", "errno", "sqlstate", "code", "returncode", "status_code", "status", "__name__", "name", "start",
    "lineno", "message", "hint", "exit", "fault", "kind", "filename", "words", "args", "diag",
}  # fmt: skip
"""Attributes that hold no words of others, or words that were cleaned when the error was made."""
OURS = {
    "cdc/jvm/java.py", "cdc/stack/supervisor.py", "cdc/wiring/sinks.py",  # files of ours: no secret is near them
    "cdc/figures/capture_metrics.py",  # the system's words on an address
    "cdc/operate/snapshot_requests.py",  # a condition's own words
    "cdc/settings/model.py",  # tomllib names a line and a column
    "connectors/kafka/broker_answers.py",  # the system's words on an address
    "snapshot/later/window_read.py",  # a condition's own words
    "snapshot/later/planner.py",  # a table's name
}  # fmt: skip


def raw_words(tree: ast.Module) -> Iterator[str]:
    """Where an f-string quotes the error that an ``except`` caught, and nothing cleans it."""
    for handler in ast.walk(tree):
        if isinstance(handler, ast.ExceptHandler) and handler.name:
            for part in ast.walk(handler):
                if isinstance(part, ast.FormattedValue) and quotes(part.value, handler.name):
                    yield f"line {part.lineno}: {ast.unparse(part.value)}"


def quotes(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called in CLEANERS:
            return False
        case ast.Attribute(attr=attribute) if attribute in NO_WORDS:
            return False
        case ast.Name(id=found):
            return found == name
    return any(quotes(child, name) for child in ast.iter_child_nodes(node))


def test_the_search_finds_what_is_quoted_raw() -> None:
    raw = ast.parse("try:\n    f()\nexcept OSError as e:\n    raise SinkError(f'{e} or {quoted(e)} or {e.strerror}')")
    assert list(raw_words(raw)) == ["line 4: e"]


@pytest.mark.parametrize("package", PACKAGES)
def test_h112_no_sentence_quotes_others_words_as_they_came(package: str) -> None:
    found = [
        f"{file.relative_to(ROOT)} {where}"
        for file in sorted((ROOT / package).rglob("*.py"))
        if str(file.relative_to(ROOT)) not in OURS
        for code in [file.read_text(encoding="utf-8")]
        if " as " in code and "except " in code
        for where in raw_words(ast.parse(code))
    ]
    assert found == [], "clean them by cdc.process.untrusted_text.quoted"


def every_error() -> list[type[CdcError]]:
    """CdcError and all below it, in all modules."""
    for package in PACKAGES:
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not any(part in module.name for part in ("__main__", ".jobs")):
                importlib.import_module(module.name)
    found: list[type[CdcError]] = [CdcError]
    for kind in found:
        found += [below for below in kind.__subclasses__() if below not in found]
    return found


def test_h112_no_kind_of_error_shows_a_secret_or_a_traceback() -> None:
    foreign.remember(["canary-of-errors"])
    kinds = every_error()
    assert len(kinds) > 20
    for kind in kinds:
        error = kind.__new__(kind)
        words = quoted("login failed: canary-of-errors\nTraceback (most recent call last):")
        CdcError.__init__(error, f"it went wrong: {words}", hint=f"see redis://cdc:canary-of-errors@h {words}")
        out = StringIO()
        code = report(error, Console(file=out, width=200))
        shown = out.getvalue()
        assert code == kind.exit, kind
        assert isinstance(kind.exit, Exit), kind
        assert "canary" not in shown, kind
        assert "Traceback" not in shown, kind
        assert shown.startswith("error: it went wrong"), kind
