"""A check's answer: a level, one sentence, and the exact SQL, command or setting that helps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from cdc.errors import CdcError, Exit


class Level(StrEnum):
    """``fail``: it will not work. ``warn``: it works until something happens."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. ``part``: ``settings``, ``postgres``, ``kafka`` or a sink. ``check``: a stable name."""

    part: str
    check: str
    level: Level
    message: str
    fix: str = ""
    exit: Exit = Exit.CONFIG

    def document(self) -> dict[str, Any]:
        """As ``cdc check --json`` prints it."""
        shown = asdict(self)
        shown["exit"] = int(self.exit) if self.level is Level.FAIL else 0
        return shown


def ok(part: str, check: str, message: str) -> Finding:
    """A finding that nothing is wrong. ``part``: what was asked, as ``postgres``. ``check``: the check's name."""
    return Finding(part=part, check=check, level=Level.OK, message=message)


def warn(part: str, check: str, message: str, fix: str = "") -> Finding:
    """A finding that stops nothing now. ``fix``: the SQL or the command that ends it, empty where there is none."""
    return Finding(part=part, check=check, level=Level.WARN, message=message, fix=fix)


def fail(part: str, check: str, message: str, fix: str, *, exit: Exit = Exit.CONFIG) -> Finding:
    """A finding that stops the pipeline. ``fix``: the SQL or the command that ends it. ``exit``: the code of ``cdc
    check``."""
    return Finding(part=part, check=check, level=Level.FAIL, message=message, fix=fix, exit=exit)


def failure(part: str, check: str, error: CdcError) -> Finding:
    """An error that a part raised while it was checked."""
    return Finding(part=part, check=check, level=Level.FAIL, message=error.message, fix=error.hint, exit=error.exit)


def exit_code(findings: Iterable[Finding]) -> Exit:
    """The code of the first failure, 0 without one. Warnings do not count."""
    return next((f.exit for f in findings if f.level is Level.FAIL), Exit.OK)
