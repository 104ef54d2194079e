"""How a process ends behind a call that nobody waits for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cdc.process.errors import Exit

LEFT_BEHIND = """
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from cdc.process.errors import SlotError
from spark.session.stop import SinkStop, ended_in_time


class Gateway:
    proc = None


class Context:
    _gateway = Gateway()


class Session:
    sparkContext = Context()


stop = SinkStop()
try:
    with ended_in_time(Session(), stop):
        ThreadPoolExecutor(1).submit(Event().wait)
        stop.left_behind = True
        stop.ask("the test")
        {last}
except SlotError:
    pass
print("over", flush=True)
"""


@pytest.mark.parametrize(("last", "code"), [("pass", Exit.OK), ("raise SlotError('a')", Exit.SLOT)])
def test_h164_a_pool_of_a_librarys_holds_no_end_up(last: str, code: Exit) -> None:
    """Python waits for such a thread, whatever it waits for itself."""
    program = [sys.executable, "-c", LEFT_BEHIND.format(last=last)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "over\n"), done.stderr
