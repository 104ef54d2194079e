"""The manuals and the code say the same: settings, commands, exit codes, links."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from cdc.cli.app import COMMANDS
from cdc.errors import Exit
from cdc.reference import table

ROOT = Path(__file__).parents[2]
MANUALS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part.startswith(".") or part in ("build", "dist", "node_modules") for part in path.relative_to(ROOT).parts
    )
)
EVERYTHING = "\n".join(path.read_text(encoding="utf-8") for path in MANUALS)


def marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)


def test_the_settings_table_is_that_of_the_models(rewrite: bool) -> None:
    manual = ROOT / "cdc" / "README.md"
    text = manual.read_text(encoding="utf-8")
    if rewrite:
        text = marked("settings").sub(lambda found: found[1] + table() + found[3], text)
        manual.write_text(text, encoding="utf-8")
    found = marked("settings").search(text)
    assert found is not None
    assert found[2] == table(), "run pytest tests/docs --rewrite"


def commands() -> list[str]:
    """Every command as typed, those of groups too: ``cdc dead list``."""
    found = []
    for entry in COMMANDS:
        if find_spec(f"cdc.cli.{entry.name}") is None:
            continue
        made = getattr(import_module(f"cdc.cli.{entry.name}"), entry.name)
        if isinstance(made, typer.Typer):
            names = [c.name or getattr(c.callback, "__name__", "") for c in made.registered_commands if not c.hidden]
            found += [f"{entry.name} {name}" for name in names]
        else:
            found.append(entry.name)
    return found


@pytest.mark.parametrize("command", commands())
def test_every_command_is_in_a_manual(command: str) -> None:
    group, _, name = command.partition(" ")
    direct = f"cdc {command}" in EVERYTHING
    listed = bool(name) and re.search(rf"`cdc {group}[^|\n]*`{name}\b", EVERYTHING) is not None
    assert direct or listed, f"no manual speaks of cdc {command}"


@pytest.mark.parametrize("code", list(Exit), ids=lambda code: str(int(code)))
def test_every_exit_code_is_in_the_manual(code: Exit) -> None:
    manual = (ROOT / "cdc" / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {int(code)} \|", manual, re.MULTILINE)


@pytest.mark.parametrize("manual", MANUALS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(manual: Path) -> None:
    text = manual.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (manual.parent / target).exists(), f"{manual}: {target}"


@pytest.mark.parametrize(
    "package", ["cdc", "cdc/jvm", "cdc/stack", "connectors/postgres", "connectors/kafka", "snapshot", "sinks", "spark"]
)
def test_every_package_has_its_manual(package: str) -> None:
    assert (ROOT / package / "README.md").exists()
