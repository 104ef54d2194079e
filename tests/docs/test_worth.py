"""What a manual says that its part is worth: figures that were measured, and the command that measures them again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.__main__ import names as benchmarks

ROOT = Path(__file__).parents[2]
MANUALS = [
    "cdc/README.md", "cdc/cli/README.md", "cdc/views/README.md", "cdc/wire/README.md", "connectors/debezium/README.md",
    "connectors/kafka/README.md", "connectors/postgres/README.md", "connectors/session/README.md", "sinks/README.md",
    "snapshot/README.md", "spark/README.md",
]  # fmt: skip
MEASURED = [
    ("tests/bench/README.md", "bench"), ("cdc/cli/README.md", "bench"), ("cdc/views/README.md", "bench"),
    ("connectors/debezium/README.md", "bench"), ("tests/faults/README.md", "results"),
]  # fmt: skip
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def block(path: str, name: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    return text.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0]


@pytest.mark.parametrize("manual", MANUALS)
def test_what_a_part_is_worth_was_measured(manual: str) -> None:
    said = block(manual, "worth")
    commands = re.findall(r"make (bench|faults) ARGS=(\w+)", said)
    assert commands, "it names no command"
    for goal, name in commands:
        assert name in benchmarks() if goal == "bench" else (ROOT / f"tests/faults/experiments/{name}.py").exists()
    measured = set(_NUMBER.findall(" ".join(block(*place) for place in MEASURED)))
    assert set(_NUMBER.findall(re.sub(r"`[^`]*`", "", said))) <= measured
