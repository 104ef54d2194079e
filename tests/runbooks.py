"""The pages that alerts name, as a person on call reads them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_HEADING = re.compile(r"(#+) (.*)")
_ANCHOR = re.compile(r"\]\(([^)\s]*#[^)\s]+)\)")


@cache
def section(runbook: str) -> str:
    """What stands below a heading, its spaces as one each. ``runbook``: ``page.md#heading``. LookupError without it."""
    page, _, anchor = runbook.partition("#")
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        heading = _HEADING.fullmatch(line)
        if heading is None or _anchor(heading[2]) != anchor:
            continue
        depth = len(heading[1])
        rest = lines[number + 1 :]
        ends = (at for at, one in enumerate(rest) if (h := _HEADING.fullmatch(one)) is not None and len(h[1]) <= depth)
        return " ".join(" ".join(rest[: next(ends, len(rest))]).split())
    raise LookupError(f"{page} has no heading {anchor}")


def links(runbook: str) -> set[str]:
    """The headings that a section leads to, each as ``page.md#heading``."""
    page = ROOT / runbook.partition("#")[0]
    found = set()
    for target in _ANCHOR.findall(section(runbook)):
        name, _, anchor = target.partition("#")
        if "://" not in name:
            place = (page.parent / name).resolve() if name else page
            found.add(f"{place.relative_to(ROOT)}#{anchor}")
    return found


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
