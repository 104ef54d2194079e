"""The encoder beside the one of another commit: child processes of both trees, in turn, on one machine.

The other commit's files are extracted from git into a temporary folder, which stands first on the Python path. The
virtual environment is the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import median

import orjson

ROOT = Path(__file__).parents[2]
PAIRS = 5
Figures = Mapping[str, float | str]
"""us of CPU by path, or why there is none."""


class NoFigures(Exception):
    """The commit cannot be measured. Its text says why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a commit, or our own."""

    name: str
    folder: Path

    def figures(self, changes: int, left_out: Iterable[str]) -> Figures:
        """Measure in a child process. NoFigures where the tree has another harness than ours needs."""
        program = ROOT / "tests" / "bench" / "encode_paths.py"
        argv = [sys.executable, "-P", str(program), str(changes), *left_out]
        env = {**os.environ, "PYTHONPATH": str(self.folder)}
        done = subprocess.run(argv, check=False, capture_output=True, cwd=self.folder, env=env)
        if done.returncode != 0:
            said = done.stderr.decode().strip().splitlines() or [f"it ended with {done.returncode}"]
            raise NoFigures(f"{self.name} cannot be measured: {said[-1]}")
        document = orjson.loads(done.stdout)
        assert Path(document["tree"]).is_relative_to(self.folder), document["tree"]
        found: Figures = document["us"]
        return found


def extract(commit: str, folder: Path) -> Tree:
    """The files of a commit, below ``folder``. NoFigures where git does not know it."""
    done = subprocess.run(["git", "archive", commit], check=False, capture_output=True, cwd=ROOT)
    if done.returncode != 0:
        raise NoFigures(f"git knows no commit {commit}.")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Tree(commit, folder)


def alternate(ours: Tree, other: Tree, changes: int, pairs: int = PAIRS) -> list[tuple[Figures, Figures]]:
    """Figures of both, ``pairs`` times; who begins alternates. A path without a figure is tried once."""
    found: list[tuple[Figures, Figures]] = []
    none: dict[str, dict[str, str]] = {ours.name: {}, other.name: {}}
    for number in range(pairs):
        sides = (ours, other) if number % 2 == 0 else (other, ours)
        measured = {}
        for tree in sides:
            known = none[tree.name]
            measured[tree.name] = {**tree.figures(changes, known), **known}
            known |= {path: why for path, why in measured[tree.name].items() if isinstance(why, str)}
        found.append((measured[ours.name], measured[other.name]))
    return found


def compared(pairs: Sequence[tuple[Figures, Figures]]) -> list[str]:
    """A line for each path: medians of both, and the ratio's median with its range over the pairs.

    >>> compared([({"insert": 5.5}, {"insert": 5.0}), ({"insert": 5.0}, {"insert": 5.0})])
    ['insert                         5.25 us beside   5.00: 1.05 (1.00 to 1.10 in 2 pairs)']
    >>> compared([({"insert": 5.5}, {"insert": "not done within 20 s of CPU"})])
    ['insert                         5.50 us beside none: not done within 20 s of CPU']
    """
    lines = []
    for name in pairs[0][0]:
        ours = [one[name] for one, _ in pairs]
        others = [other.get(name, "it has no such path") for _, other in pairs]
        words = [one for one in (*ours, *others) if isinstance(one, str)]
        mine = [one for one in ours if not isinstance(one, str)]
        theirs = [one for one in others if not isinstance(one, str)]
        shown = f"{name:28} {median(mine):6.2f} us" if mine else f"{name:28}   none   "
        if words:
            lines.append(f"{shown} beside none: {words[0]}")
            continue
        ratios = [one / two for one, two in zip(mine, theirs, strict=True)]
        lines.append(
            f"{shown} beside {median(theirs):6.2f}: {median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} pairs)"
        )
    return lines
