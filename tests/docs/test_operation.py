"""The pages of operation name tests that exist, and quote figures that stand in the pages which they name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
_TEST = re.compile(r"\[(test_\w+)\]\(([^)]+)\)")
_TEST_ROW = re.compile(r"\| \[test_\w+\]\([^)]+\) \|")
_FIGURE = re.compile(r'^\| [^|]+ \| "([^"|]+)"[^|]* \| \[[^]]+\]\(([^)#]+)[^)]*\) \|$', re.MULTILINE)


def text_of(page: str) -> str:
    return (COMPOSE / page).read_text(encoding="utf-8")


def rows(page: str) -> list[str]:
    """The rows of its tables, without heads."""
    lines = text_of(page).splitlines()
    heads = {number for number, line in enumerate(lines) if line.startswith("| ---")}
    return [line for n, line in enumerate(lines) if line.startswith("|") and n not in heads and n + 1 not in heads]


@pytest.mark.parametrize("page", ["RESTORE.md", "UPGRADE.md"])
def test_the_tests_that_a_page_names_are_there(page: str) -> None:
    named = _TEST.findall(text_of(page))
    assert named
    for name, file in named:
        path = (COMPOSE / file).resolve()
        assert re.search(rf"^def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE), f"{page}: {file} {name}"


def test_each_part_that_is_put_back_names_its_test() -> None:
    assert [row for row in rows("RESTORE.md") if not _TEST_ROW.search(row)] == []


def test_each_figure_of_capacity_is_a_quote() -> None:
    quoted = _FIGURE.findall(text_of("CAPACITY.md"))
    assert len(quoted) == len(rows("CAPACITY.md"))
    for figure, file in quoted:
        path = (COMPOSE / file).resolve()
        found = path.read_text(encoding="utf-8")
        words = " ".join((json.dumps(json.loads(found)) if path.suffix == ".json" else found).split())
        assert figure in words, f"{file} does not say: {figure}"


def test_exit_codes_of_a_restore_are_those_of_the_manual() -> None:
    manual = (ROOT / "cdc" / "README.md").read_text(encoding="utf-8")
    codes = set(re.findall(r"ends with (\d+)", text_of("RESTORE.md") + text_of("UPGRADE.md")))
    assert codes == {"80", "81", "82", "84"}
    assert all(re.search(rf"^\| {code} \|", manual, re.MULTILINE) for code in codes)


def test_the_lists_of_pages_lead_to_them() -> None:
    for page in ("RESTORE.md", "UPGRADE.md", "CAPACITY.md"):
        assert f"]({page})" in text_of("README.md")
        assert f"](compose/{page})" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_each_file_of_rights_stands_on_its_page_and_is_tried() -> None:
    page = text_of("rights/README.md")
    tried = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py"))
    for file in (COMPOSE / "rights").iterdir():
        if file.suffix != ".md":
            assert f"]({file.name})" in page
            assert f'"{file.name}"' in tried, f"no test applies {file.name}"
