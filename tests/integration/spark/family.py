"""The processes below a process, by ``/proc``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process by its id and its start, so that a reused id is another one."""

    pid: int
    started: str

    def runs(self) -> bool:
        found = _read(self.pid)
        return found is not None and found[2] == self.started and found[0] != "Z"


def below(pid: int) -> list[Process]:
    """Children, their children, and so on."""
    parents: dict[int, list[Process]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        found = _read(int(entry.name))
        if found is not None:
            parents.setdefault(int(found[1]), []).append(Process(int(entry.name), found[2]))
    family: list[Process] = []
    ahead = [pid]
    while ahead:
        children = parents.get(ahead.pop(), [])
        family += children
        ahead += [child.pid for child in children]
    return family


def _read(pid: int) -> tuple[str, str, str] | None:
    """State, parent and start of a process; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[1], fields[19]


def named(pid: int) -> str:
    """The name of a process's program; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def peak_bytes(pid: int, name: str, *, but: bool = False) -> int:
    """The most memory that a process has had at once; 0 for one that has ended, or that has another name (``but``: that
    very name)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    named = said["Name"].strip() == name
    return int(said["VmHWM"].split()[0]) * 1024 if "VmHWM" in said and named != but else 0
