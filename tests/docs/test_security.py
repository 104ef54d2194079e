"""What SECURITY.md says, and the README where it promises, is what a test does: each sentence names its tests."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
_END = re.compile(r"(?<=[^:]\.) (?=[A-Z`])")
"""The end of a sentence. What is listed behind a colon belongs to it."""
_HEAD = re.compile(r"\*\*[^*]+\*\* ")
OPEN = ("A [DataFrame]",)
"""How the sentences begin that no test proves yet."""


@cache
def claims() -> dict[str, dict[str, Any]]:
    """Sentence -> what stands of it in claims.toml."""
    found = tomllib.loads((TESTS / "docs" / "claims.toml").read_text(encoding="utf-8"))["claim"]
    assert len({one["says"] for one in found}) == len(found)
    return {one["says"]: one for one in found}


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, without headings, tables and code."""
    prose = [line for line in text.splitlines() if not line.startswith(("#", "|", "    ")) and line.strip() != ""]
    whole = _HEAD.sub("", " ".join(" ".join(prose).split()))
    yield from (one.strip() for one in _END.split(whole))


def promised() -> Iterator[str]:
    """What the README promises, and what it says of secrets."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    promise = text.partition("**What it promises.**")[2].partition("**What it does not do.**")[0]
    yield from (one for one in sentences(promise) if one)
    yield from re.findall(r"# (secrets are .*)", text)


def test_each_sentence_has_its_tests_in_the_same_words() -> None:
    said = [*sentences((ROOT / "SECURITY.md").read_text(encoding="utf-8")), *promised()]
    assert [one for one in said if one not in claims()] == []
    assert [one for one in claims() if one not in said] == [], "claims.toml has what no page says"


def test_each_claim_is_proven_a_fact_or_known_to_be_open() -> None:
    for says, claim in claims().items():
        assert len({"tests", "fact", "open"} & claim.keys()) == 1, says
    assert all(says.startswith(OPEN) for says, claim in claims().items() if "open" in claim)


def test_the_tests_that_prove_exist() -> None:
    for says, claim in claims().items():
        for named in claim.get("tests", ()):
            file, _, name = named.partition("::")
            text = (TESTS / file).read_text(encoding="utf-8")
            assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE), f"{named}, of: {says}"
