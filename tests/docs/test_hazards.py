"""The matrix of hazards in tests/README.md names every test that has a hazard's number, and no other."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
MATRIX = re.compile(r"(<!-- hazards -->\n.*?\n)(\| H.*?)(<!-- /hazards -->)", re.DOTALL)
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
_HAZARD = re.compile(r"(?<=_)h(\d+b?)(?=_)")
HAZARDS = ["1", "2", "3", "3b", *map(str, range(4, 94))]
NO_TEST = ("nothing to test: ", "open: ")


def named() -> dict[str, list[str]]:
    """Hazard -> the files with a test of it, below tests/."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for name in _TEST.findall(path.read_text(encoding="utf-8")):
            for hazard in _HAZARD.findall(f"{name}_"):
                found[hazard].add(path.relative_to(TESTS).as_posix())
    return {hazard: sorted(files) for hazard, files in found.items()}


def rows(text: str) -> list[list[str]]:
    """Hazard, what goes wrong, what the tests show, where."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def where(files: list[str]) -> str:
    """Files as links, by their name where no other has it."""
    return ", ".join(f"[{Path(file).stem.removeprefix('test_')}]({file})" for file in files)


def test_the_matrix_is_that_of_the_tests(rewrite: bool) -> None:
    readme = TESTS / "README.md"
    text = readme.read_text(encoding="utf-8")
    files = named()
    if rewrite:
        table = rows(MATRIX.search(text)[2])  # type: ignore[index]
        lines = [f"| {n} | {what} | {shown} | {where(files.get(n[1:], []))} |\n" for n, what, shown, _ in table]
        text = MATRIX.sub(lambda found: found[1] + "".join(lines) + found[3], text)
        readme.write_text(text, encoding="utf-8")
    found = MATRIX.search(text)
    assert found is not None
    table = rows(found[2])
    known = [row[0].removeprefix("H") for row in table]
    assert known[: len(HAZARDS)] == HAZARDS
    added = [int(number) for number in known[len(HAZARDS) :]]
    assert added == sorted(set(added)), "rows from H94 on stand in the order of their numbers"
    assert set(files) <= set(known), "a test names a hazard that has no row"
    for number, what, shown, links in table:
        assert what and shown, number
        assert links == where(files.get(number[1:], [])), f"{number}: run pytest tests/docs --rewrite"
        assert bool(links) != shown.startswith(NO_TEST), f"{number}: a test, or a sentence why there is none"
