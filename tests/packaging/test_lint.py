"""What `make lint` runs, beside the other tests: types take three seconds of one core, and a minute where nothing is
kept from before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def lint_commands() -> list[str]:
    """The goal's lines in the Makefile, without their folder."""
    goal = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nlint: setup\n")[1].split("\n\n")[0]
    return [line.strip().removeprefix("@$(BIN)/") for line in goal.splitlines()]


def test_the_goal_has_style_types_and_import_rules() -> None:
    assert lint_commands() == ["ruff check .", "ruff format --check .", "mypy", "lint-imports"]


@pytest.mark.parametrize("command", lint_commands())
def test_the_tree_is_clean(command: str) -> None:
    program, *arguments = command.split()
    done = subprocess.run([BIN / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
