"""The manuals and the code say the same: settings, commands, exit codes, links."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from cdc.cli.app import COMMANDS
from cdc.process.errors import Exit
from cdc.settings.settings_reference import table
from sinks.contract.kinds import sink_sections
from tests.docs.events import events

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
        text = marked("settings").sub(lambda found: found[1] + table(sink_sections()) + found[3], text)
        manual.write_text(text, encoding="utf-8")
    found = marked("settings").search(text)
    assert found is not None
    assert found[2] == table(sink_sections()), "run pytest tests/docs --rewrite"


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
    "package",
    [
        "cdc",
        "cdc/cli",
        "cdc/jvm",
        "cdc/stack",
        "cdc/views",
        "cdc/wire",
        "connectors/debezium",
        "connectors/postgres",
        "connectors/kafka",
        "connectors/session",
        "snapshot",
        "sinks",
        "spark",
    ],
)
def test_every_package_has_its_manual(package: str) -> None:
    assert (ROOT / package / "README.md").exists()


@pytest.mark.slow
def test_every_event_of_the_logs_is_in_its_manual() -> None:
    found = marked("events").search((ROOT / "cdc" / "LOGS.md").read_text(encoding="utf-8"))
    assert found is not None
    rows = [line.split("|") for line in found[2].splitlines() if line.startswith("| `")]
    said = {row[1].strip(" `"): {row[2].strip()} for row in rows}
    assert len(said) == len(rows)
    written = events()
    assert sorted(written.keys() - said.keys()) == [], "say in cdc/LOGS.md what they mean"
    assert sorted(said.keys() - written.keys()) == [], "no log has these any more"
    assert said == written, "the levels differ"


def test_each_question_has_one_file_that_is_there() -> None:
    found = marked("questions").search((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert found is not None
    files = re.findall(r"\| \[([^]]+)\]\(([^)]+)\) \|", found[2])
    assert len(set(files)) == 15
    for shown, target in files:
        assert shown == target
        assert (ROOT / target).is_file()


def test_make_goals_and_files_that_the_pages_name_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for goal in re.findall(r"\bmake (\w+)", "\n".join(re.findall(r"`[^`]+`|^    \$.*", text, re.MULTILINE))):
            assert re.search(rf"^{goal}:", makefile, re.MULTILINE), f"{page}: make {goal}"
        for path in re.findall(r"`((?:cdc|connectors|sinks|snapshot|spark|tests)/[\w/.]+)`", text):
            assert (ROOT / path).exists(), f"{page}: {path}"


def anchors(manual: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", manual.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("manual", MANUALS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_promises_of_another_is_there(manual: Path) -> None:
    """A link to a section, and a section named in quotes behind a link: `[sinks](...), "When a table changes"`."""
    text = manual.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
        page = manual.parent / target if target else manual
        assert page.is_dir() or anchor in anchors(page), f"{manual.name}: {target}#{anchor}"
    for target, section in re.findall(r"\]\(([^)#:]+\.md)\), \"([^\"]+)\"", text):
        assert f"# {section}\n" in (manual.parent / target).read_text(encoding="utf-8"), f"{manual.name}: {section}"
