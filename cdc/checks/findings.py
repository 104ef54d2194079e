"""A check's answer: a level, one sentence, and the exact SQL, command or setting that helps. All faults are worded
here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from cdc.figures.process_status import Process
from cdc.process.errors import CdcError, Exit
from cdc.record.state import ReadingState
from cdc.record.tables_aside import FOLLOW_AGAIN, AsideState, Cause, TableState
from cdc.record.topic_names import VIEW_SCHEMA


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


# Faults of a pipeline's parts and their fixes: pure. No other module words them.
#
# ``cdc status``, ``cdc check`` and the page show these sentences. The reason that a process gives itself comes before
# any that the log suggests.

BY_ITSELF = "it ends by itself; cdc status shows how far it is"
WATCH = "cdc status --watch shows whether it catches up"
_FIXES = {
    Cause.LOCKED: "end the transaction that has its lock; connectors/postgres/README.md, A table waits, has the query",
    Cause.CHANGED: "cdc snapshot {table} takes its key as it is now, or give it its former key again",
    Cause.NOT_FOLLOWED: FOLLOW_AGAIN,
    Cause.NOT_READABLE: "grant select on {table} to the role of capture; then it is read again by itself",
}
SLOT_LOST = "cdc init --new-epoch, then cdc snapshot; see connectors/postgres/README.md, slot lost"
CONNECTOR_SLOT_LOST = "see connectors/debezium/README.md, The slot is lost"


class Condition(NamedTuple):
    """One thing that is wrong. ``sentence``: with its cause. ``cure``: a command or a setting, or that it ends by
    itself."""

    sentence: str
    cure: str


def process_conditions(process: Process, wrong: Collection[str]) -> Iterator[Condition]:
    """The faults that a process reports of its parts. ``wrong``: parts that the log shows to be behind, for which the
    silence of a process is a cause as well."""
    yield from troubles(process)
    unsaid = [part for part in process.parts if part in wrong and part not in process.said]
    if unsaid:
        yield absence(process, unsaid)


def troubles(process: Process) -> Iterator[Condition]:
    """The faults of its parts that a process reports."""
    for part, trouble in process.said.items():
        if trouble.why:
            yield Condition(f"{part}: {trouble.why}", trouble.cure or f"the log of {process.command} says more")


def absence(process: Process, parts: Iterable[str]) -> Condition:
    """The fault of a process that does not report these of its parts.

    >>> sink = Process(command="cdc sink", setting="[spark] http_address", address="127.0.0.1:9465", parts=["cache"])
    >>> absence(sink, ["cache"]).sentence
    'cdc sink does not answer at 127.0.0.1:9465'
    """
    command, setting, address = process.command, process.setting, process.address
    if not address:
        said = f"no address is set for {command} ({setting}), so whether it runs is not known"
        return Condition(said, f"set it to host:port, and start {command} again")
    cure = f"start {command}: its log says why it ended; where it serves another address, set {setting} to that one"
    if process.said:
        return Condition(f"the {command} at {address} does not keep {', '.join(parts)}", cure)
    return Condition(f"{command} does not answer at {address}", cure)


def aside_condition(one: AsideState, read: Collection[str]) -> Condition:
    """A table that is set aside, or waits. ``read``: tables that are being read again, or are to be."""
    if one.state is not TableState.READING:
        return Condition(one.sentence(), _FIXES[one.cause].format(table=one.table))
    if one.table in read:
        return Condition(one.sentence(), BY_ITSELF)
    return Condition(f"{one.table} was set aside, and is not read again", f"cdc snapshot {one.table}")


def waiting_reading(table: str, why: str) -> Condition:
    """A table that is to be read and is not yet."""
    return Condition(f"{table} waits to be read: {why}", "end that cause; then it is read by itself")


def unfed_view(name: str) -> Condition:
    """A view that no sink takes."""
    return Condition(f"the view {name} goes to no store", f'add "{VIEW_SCHEMA}.{name}" to the tables of a sink')


def failed_reading(table: str, detail: str) -> Condition:
    """A table that could not be read again."""
    cure = f"end that cause, then: cdc snapshot {table}; or give it up: cdc snapshot {table} --cancel"
    return Condition(f"{table} could not be read again: {detail}", cure)


def failed_readings(states: Iterable[ReadingState]) -> list[ReadingState]:
    """The failed readings after which no reading of the whole table has finished."""
    each = list(states)
    whole = {one.table: one for one in each if one.id == f"snapshot:{one.table}" and one.state == "done"}
    return [one for one in each if one.state == "failed" and not _made_good(one, whole)]


def _made_good(failed: ReadingState, whole: Mapping[str, ReadingState]) -> bool:
    done = whole.get(failed.table)
    return done is not None and (done.epoch, done.started_ns) > (failed.epoch, failed.finished_ns)
