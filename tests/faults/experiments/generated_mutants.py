"""Every small change of the modules that decide what is kept, made by rule: nine in ten are noticed in each module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.faults.generated.rooms import ROOMS, ROOT, Room, listed
from tests.faults.lab import Found, Lab
from tests.faults.reach import digest_of

WANTED = 0.9
"""Changes that are noticed, of those that can be."""


def codes() -> Mapping[str, str]:
    """Room -> the digest of its modules, of its tests and of what is listed of it."""
    return {
        name: digest_of(
            [*(str(file.relative_to(ROOT)) for file in room.files), *room.test_files],
            *(f"{one}" for one in listed() if any(one.meets(str(file), one.change) for file in room.files)),
        )
        for name, room in ROOMS.items()
    }


def run(lab: Lab) -> None:
    """The rooms that were not tried on this code, in turn: their modules' changes, and the tests that reach them."""
    too_few, known = [], codes()
    for name in lab.parts(known):
        found = tried(lab, ROOMS[name])
        few = [module for module, verdicts in found.items() if share(verdicts) < WANTED]
        sums = sum(found.values(), Counter())
        lab.part(name, "" if few else known[name], {module: said(one) for module, one in found.items()}, **sums)
        too_few += few
        for module, verdicts in found.items():
            lab.say(f"  {module}: {said(verdicts)}")
    if too_few:
        raise Found(f"fewer than {WANTED:.0%} of the changes are noticed in {', '.join(too_few)}")


Verdicts = Counter[str]
"""``killed``, ``survived``, and ``listed`` for a survivor that makes no difference."""


def tried(lab: Lab, room: Room) -> dict[str, Verdicts]:
    """Module -> what came of its changes; survivors that are not listed are said."""
    known = list(listed())
    found: dict[str, Verdicts] = {str(file.relative_to(ROOT)): Counter() for file in room.files}
    for one in _judged(room, lab.workers):
        verdict = "killed" if one["verdict"] in ("killed", "timeout") else "survived"
        if verdict == "survived" and any(entry.meets(one["file"], one["name"]) for entry in known):
            verdict = "listed"
        if verdict == "survived":
            lab.say(f"    {one['file']}:{one['line']} {one['name']} ({one['verdict']})")
        found[one["file"]][verdict] += 1
    return found


def share(verdicts: Verdicts) -> float:
    """Changes that were noticed, of those that can be. Found where there was none."""
    can_be = verdicts["killed"] + verdicts["survived"]
    if not can_be:
        raise Found("no change could be made")
    return verdicts["killed"] / can_be


def said(verdicts: Verdicts) -> str:
    """A module's figures, as the manual's table has them."""
    can_be = verdicts["killed"] + verdicts["survived"]
    return f"{verdicts['killed']} of {can_be} ({share(verdicts):.1%}); {verdicts['listed']} make no difference"


def _judged(room: Room, workers: int) -> Iterator[Mapping[str, Any]]:
    """A line for each change, from a process that has imported everything (:mod:`tests.faults.generated.judge`)."""
    files = [str(file.relative_to(ROOT)) for file in room.files]
    command = [sys.executable, "-m", "tests.faults.generated.judge", str(workers), *files, "--", *room.test_files]
    done = set()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if "done" in said:
                done.add(said["done"])
            elif "verdict" in said:
                yield said
    if done != set(files):
        raise Found(f"the changes of {', '.join(sorted(set(files) - done))} could not be tried")
