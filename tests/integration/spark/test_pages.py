"""Spark's pages are off; switched on they, and all other ports of its JVM, are on loopback alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.spark.family import below, named
from tests.integration.spark.test_process import START_S
from tests.programs import Spawn, Spawned
from tests.waiting import wait_until

SESSION = """
import sys
from pathlib import Path
from cdc.jvm.java import java_home
from spark.session.spark_session import SessionSpec, start_session
spec = SessionSpec(
    name="pages", master="local[1]", driver_memory="512m", log_folder=Path(sys.argv[1]), java_home=java_home(),
    ui=sys.argv[2] == "True", conf={"spark.ui.port": "0"},
)
print("pages", start_session(spec).sparkContext.uiWebUrl, flush=True)

while True:
    __import__("threading").Event().wait(60)
"""
_LISTENS = "0A"
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


def listening(pid: int) -> set[str]:
    """The addresses at which a process listens, as the kernel writes them."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(descriptor))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in own:
                found.add(fields[1].partition(":")[0])
    return found


def java_below(program: Spawned) -> int:
    [java] = [one.pid for one in below(program.process.pid) if named(one.pid) == "java"]
    return java


@pytest.mark.slow
def test_h362_sparks_ports_are_on_loopback(spawn: Spawn, tmp_path: Path) -> None:
    program = spawn("python", "-c", SESSION, tmp_path, "True")
    wait_until(lambda: "pages" in program.stdout, START_S, lambda: program.stderr)
    assert "http://" in program.stdout
    addresses = listening(java_below(program))
    assert addresses and addresses <= set(_LOOPBACK)
