"""The two matrices of tests/README.md name every test that has a number of theirs, and no other."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MATRIX = re.compile(r"(<!-- hazards -->\n.*?\n)(\| H.*?)(<!-- /hazards -->)", re.DOTALL)
REPORTS = re.compile(r"(<!-- reports -->\n.*?\n)(\| W.*?)(<!-- /reports -->)", re.DOTALL)
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
_NUMBER = re.compile(r"(?<=_)([hwxy]\d+b?)(?=_)")
REPORTED = [*(f"W{n}" for n in range(1, 10)), *(f"X{n}" for n in (*range(1, 9), 12)), *(f"Y{n}" for n in range(1, 19))]
HAZARDS = ["1", "2", "3", "3b", *map(str, range(4, 94))]
NO_TEST = ("nothing to test: ", "open: ", "in the laboratory: ")


def named() -> dict[str, list[str]]:
    """Number -> the files with a test of it, below tests/."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for name in _TEST.findall(path.read_text(encoding="utf-8")):
            for number in _NUMBER.findall(f"{name}_"):
                found[number.upper().replace("B", "b")].add(path.relative_to(TESTS).as_posix())
    return {number: sorted(files) for number, files in found.items()}


def rows(text: str) -> list[list[str]]:
    """Hazard, what goes wrong, what the tests show, where."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def where(files: list[str]) -> str:
    """Files as links, by their name where no other has it."""
    return ", ".join(f"[{Path(file).stem.removeprefix('test_')}]({file})" for file in files)


def written(matrix: re.Pattern[str], text: str, files: dict[str, list[str]]) -> str:
    """The text with the last column of a matrix as the tests' names have it."""
    found = matrix.search(text)
    assert found is not None
    lines = [f"| {n} | {what} | {shown} | {where(files.get(n, []))} |\n" for n, what, shown, _ in rows(found[2])]
    return text[: found.start(2)] + "".join(lines) + text[found.end(2) :]


@pytest.mark.parametrize("matrix", [MATRIX, REPORTS], ids=["hazards", "reports"])
def test_the_matrix_is_that_of_the_tests(matrix: re.Pattern[str], rewrite: bool) -> None:
    readme = TESTS / "README.md"
    text = readme.read_text(encoding="utf-8")
    files = named()
    if rewrite:
        text = written(matrix, text, files)
        readme.write_text(text, encoding="utf-8")
    found = matrix.search(text)
    assert found is not None
    for number, what, shown, links in rows(found[2]):
        assert what and shown, number
        assert links == where(files.get(number, [])), f"{number}: run pytest tests/docs --rewrite"
        assert bool(links) != shown.startswith(NO_TEST), f"{number}: a test, or a sentence why there is none"


def test_every_number_has_a_row_in_its_place() -> None:
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    hazards, reports = ([row[0] for row in rows(matrix.search(text)[2])] for matrix in (MATRIX, REPORTS))  # type: ignore[index]
    assert [row.removeprefix("H") for row in hazards[: len(HAZARDS)]] == HAZARDS
    added = [int(row.removeprefix("H")) for row in hazards[len(HAZARDS) :]]
    assert added == sorted(set(added)), "rows from H94 on stand in the order of their numbers"
    assert reports == REPORTED
    assert set(named()) <= {*hazards, *reports}, "a test names a number that has no row"
