"""A process that waits for stores and forks: the child has pollers of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from tests.waiting import TIME_SCALE

LONG_S = 30 * TIME_SCALE

FORKS = """
import os, sys
from cdc.record.position import Lsn
from cdc.read import Freshness, Token
freshness = Freshness("sql", "shop", url=sys.argv[1])
wanted = Token("7", 1, Lsn(5))
print(freshness.wait(wanted, timeout_s=30).lsn, flush=True)
child = os.fork()
print("child" if child == 0 else "parent", freshness.wait(wanted, timeout_s=30).lsn, flush=True)
freshness.close()
if child == 0:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_worker_has_a_poller_of_its_own(tmp_path: Path) -> None:
    """As web servers do that load the application first, and fork afterwards."""
    where = {"url": f"sqlite:///{tmp_path}/store.db"}
    with contextlib.closing(open_sink(spec_for("sql", prefix="shop", options=where))) as store:
        store.commit(Watermark(epoch=1, lsn=5, lineage=SourceLineage("7", 1)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, where["url"]],
        capture_output=True,
        text=True,
        timeout=4 * LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "5", "child 5", "parent 5"]


FORKS_WHILE_LOCKED = """
import os, signal, threading
from cdc.freshness.run import Pollers, WatermarkPoller
pollers, held, go_on = Pollers(), threading.Event(), threading.Event()
def slow():
    held.set()
    go_on.wait(60)
    return WatermarkPoller(lambda: None)
threading.Thread(target=pollers.join, args=("a", slow)).start()
held.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)
    pollers.join("b", lambda: WatermarkPoller(lambda: None))
    os._exit(0)
status = os.waitpid(child, 0)[1]
go_on.set()
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


def test_a_fork_while_another_thread_opens_a_store_is_free() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS_WHILE_LOCKED],
        capture_output=True,
        text=True,
        timeout=4 * LONG_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
