"""Rules broken on purpose, one at a time, in a copy of the tree: a test notices each."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree, ignore_patterns

from tests.faults.lab import Found, Lab
from tests.faults.mutants import MUTANTS, ROOT, Mutant
from tests.faults.reach import digest_of

_PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark", "tests")
_TIMEOUT_S = 900
_FROM_OUTSIDE = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
"""No test noticed anything: somebody, or the kernel, ended its process."""
_FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def codes() -> Mapping[str, str]:
    """Mutant -> the digest of the file that it breaks, of itself and of its tests."""
    return {
        mutant.name: digest_of([mutant.file, *_tests(mutant)], mutant.old, mutant.new, mutant.tests)
        for mutant in MUTANTS
    }


def _tests(mutant: Mutant) -> list[str]:
    """The files and folders of tests that it names."""
    return [word.partition("::")[0] for word in shlex.split(mutant.tests) if word.startswith("tests/")]


def run(lab: Lab) -> None:
    """The mutants that were not tried on this code, in turn."""
    tree = lab.folder / "tree"
    for name in _PACKAGES:
        copytree(ROOT / name, tree / name, ignore=ignore_patterns("__pycache__"))
    (tree / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    survivors, known, by_name = [], codes(), {mutant.name: mutant for mutant in MUTANTS}
    for name in lab.parts(known):
        began = time.monotonic()
        test = first_failure(by_name[name], tree)
        if test is None:
            survivors.append(name)
            lab.part(name, "", {name: "SURVIVES"}, survived=1)
        else:
            lab.part(name, known[name], {name: test}, caught=1)
        lab.say(f"  {name}: {test or 'SURVIVES'} ({time.monotonic() - began:.0f} s)")
    if survivors:
        raise Found(f"no test notices: {'; '.join(survivors)}")


def first_failure(mutant: Mutant, tree: Path) -> str | None:
    """The first test that fails in the tree with the rule broken; None when all pass. The tree is mended again."""
    file = tree / mutant.file
    sound = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(sound), encoding="utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no"]
        done = subprocess.run(
            [*command, *shlex.split(mutant.tests)], cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    finally:
        file.write_text(sound, encoding="utf-8")
    if done.returncode == 0:
        return None
    if -done.returncode in _FROM_OUTSIDE:
        raise SystemExit(f"{mutant.name}: its tests were ended by signal {-done.returncode}, and say nothing")
    if done.returncode < 0:
        return f"the tests' process ended by signal {-done.returncode}"
    found = _FIRST_FAILURE.search(done.stdout)
    if found is None:
        raise Found(f"{mutant.name}: pytest could not run: {done.stdout[-500:]}{done.stderr[-500:]}")
    return found[1]
