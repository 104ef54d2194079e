"""The rooms whose modules are changed, the tests that should notice, and the changes that none can."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
_UNIT = "tests/unit"


class Room(NamedTuple):
    """``modules``: ends of paths, each of one file; ``tests``: folders and files of tests, as patterns."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def files(self) -> list[Path]:
        return [found(module) for module in self.modules]

    @property
    def test_files(self) -> list[str]:
        return sorted(str(path.relative_to(ROOT)) for pattern in self.tests for path in ROOT.glob(pattern))


_CDC = f"{_UNIT}/cdc/test_*.py"
_WIRE = f"{_UNIT}/cdc/wire/test_*.py"
_POSTGRES = f"{_UNIT}/connectors/postgres"
_SNAPSHOT = f"{_UNIT}/snapshot"
_SPARK = f"{_UNIT}/spark"

ROOMS: Mapping[str, Room] = {
    "position": Room(("position.py", "lsn.py", "cdc/topic.py"), (_CDC,)),
    "record": Room(("wire/canonical.py", "wire/plain.py", "wire/records.py"), (_CDC, _WIRE, _POSTGRES)),
    "progress": Room(("cdc/progress.py", "cdc/advance.py", "boundary.py", "cdc/epochs.py"), (_CDC,)),
    "stored": Room(("cdc/state.py", "cdc/stored.py", "cdc/schema.py"), (_CDC, _SNAPSHOT)),
    "condition": Room(("cdc/condition.py", "snapshot/later/condition_sql.py"), (_CDC, _SNAPSHOT)),
    "windows": Room(("cdc/windows.py",), (_CDC,)),
    "decoder": Room(("postgres/pgoutput.py", "wire/envelope.py"), (_WIRE, _POSTGRES)),
    "assembly": Room(("postgres/assemble.py", "postgres/transaction.py", "postgres/cut.py"), (_POSTGRES,)),
    "netting": Room(("postgres/netting.py",), (_POSTGRES,)),
    "waiting": Room(("postgres/waiting.py", "postgres/held.py"), (_POSTGRES,)),
    "snapshot": Room(
        ("snapshot/forms.py", "snapshot/chunks.py", "first/ledger.py", "later/chunk_queue.py"), (_SNAPSHOT,)
    ),
    "sinks": Room(
        ("sinks/plan.py", "sinks/fill.py", "sinks/newest.py", "sinks/patches.py"),
        (f"{_UNIT}/sinks", f"{_SPARK}/test_*.py", "tests/contract"),
    ),
    "spark": Room(
        ("spark/watermark.py", "spark/holds.py", "spark/apply.py", "spark/batch.py"), (_SPARK, f"{_UNIT}/sinks")
    ),
}  # fmt: skip


@cache
def found(end: str) -> Path:
    """The one module whose path ends so. ValueError where there is none, or more."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if f"/{path}".endswith(f"/{end}")]
    if len(files) != 1:
        raise ValueError(f"{len(files)} modules end with {end}")
    return files[0]


class Listed(NamedTuple):
    """Changes of a module that no test can notice, or need not, and why. A ``*`` in ``change`` stands for anything."""

    module: str
    change: str
    why: str

    def meets(self, file: str, change: str) -> bool:
        pattern = ".*".join(map(re.escape, self.change.split("*")))
        return f"/{file}".endswith(f"/{self.module}") and re.fullmatch(pattern, change) is not None


def listed() -> Iterator[Listed]:
    """The list that is kept: a table for each module, ``change = reason``."""
    for module, reasons in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).items():
        yield from (Listed(module, change, why) for change, why in reasons.items())
