"""``cdc`` as a process of its own, without the time to import it: one process has, and forks each command from itself.

What is forked is the real command in a real process, with its own arguments, environment, folder and files, and ends
as any other: at its own exit, or by a signal. What it lacks is a command line for others to see, and a cold start.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType

import orjson

from cdc.process import crash_points as crash

_PRELOADED = (
    "cdc.cli.app",
    "connectors.session.opening",
    "connectors.operate.init",
    "connectors.operate.snapshot",
    "connectors.operate.status",
    "connectors.operate.verify",
    "snapshot.later.request_scheduler",
    "snapshot.first.workers",
    "sinks.contract.sink_spec",
    "spark.runner.application",
    "spark.runner.generation_fill",
    "cdc.wiring.pipeline",
    "cdc.wiring.sinks",
    "cdc.wiring.pipeline",
    "cdc.wiring.sinks",
    "cdc.wiring.sinks",
    "cdc.wiring.sinks",
    "cdc.wiring.pipeline",
)
_LIMIT = 1 << 20
_PR_SET_PDEATHSIG = 1


class Forked:
    """One command, with what tests ask of a :class:`subprocess.Popen`. Its parent is the fork server."""

    def __init__(self, pid: int, report: socket.socket, args: Sequence[str]) -> None:
        self.pid = pid
        self.args = list(args)
        self.returncode: int | None = None
        self._report = report

    def poll(self) -> int | None:
        """Its exit code, -9 for a SIGKILL; None while it lives."""
        return self._ask(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; subprocess.TimeoutExpired past the time."""
        code = self._ask(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _ask(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout_s)[0]:
            word = self._report.recv(16)
            self._report.close()
            if not word:
                raise RuntimeError("the fork server ended, and its children with it")
            self.returncode = int(word)
        return self.returncode


class ForkServer:
    """The process that forks. A context; its children end with it, and it with us."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parent.parent,
            )

    def close(self) -> None:
        self._link.close()
        self._process.wait(30)

    def start(self, arguments: Sequence[str], out: Path, err: Path, *, env: Mapping[str, str], cwd: Path) -> Forked:
        """Start ``cdc ARGUMENTS…`` with stdout and stderr in files."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = orjson.dumps({"arguments": list(arguments), "env": dict(env), "cwd": str(cwd)})
        with theirs, out.open("wb") as stdout, err.open("wb") as stderr:
            # One message is one order; the kernel's limit for it is far above any environment of ours.
            self._link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LIMIT)
            socket.send_fds(self._link, [order], [stdout.fileno(), stderr.fileno(), theirs.fileno()])
            word = ours.recv(16)
        if not word:
            raise RuntimeError("the fork server has ended")
        return Forked(int(word), ours, ["cdc", *arguments])


# -- in the fork server's own process


def main(link: socket.socket) -> None:
    """Fork what is ordered until the other side is gone; in a child, return when it has become the command."""
    for module in _PRELOADED:
        import_module(module)
    gc.collect()
    gc.freeze()
    own = os.getpid()
    reports: dict[int, socket.socket] = {}
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([link.fileno(), awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
            _bury(reports)
        if link.fileno() not in ready:
            continue
        order, files, _, _ = socket.recv_fds(link, _LIMIT, 3)
        if not order:
            break
        report = socket.socket(fileno=files[2])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (link, report, *reports.values()):
                other.close()
            os.close(awake)
            os.close(wake)
            _become(orjson.loads(order), files[0], files[1], own)
            return
        report.send(str(pid).encode())
        reports[pid] = report
        for file in files[:2]:
            os.close(file)
    for pid in reports:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _bury(reports: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with reports.pop(pid) as report, suppress(OSError):
                report.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(order: Mapping[str, object], out: int, err: int, parent: int) -> None:
    """Be as one that was just started by ``python -m cdc``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)
    # A shell's background job inherits that Ctrl-C is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, given in ((1, out), (2, err)):
        os.dup2(given, number)
        os.close(given)
    environment = order["env"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(order["cwd"]))
    arguments = order["arguments"]
    assert isinstance(arguments, list)
    sys.argv = ["cdc", *arguments]
    own_main = ModuleType("__main__")
    own_main.__spec__ = importlib.util.find_spec("cdc.__main__")
    sys.modules["__main__"] = own_main
    crash.arm(os.environ.get("CDC_CRASH_AT", ""))


def _run_and_leave() -> None:
    """As any program ends, but that the memory which it shares with the fork server is not looked through for what
    could go: that would copy all of it."""
    from cdc.cli import main as command  # noqa: PLC0415 - the fork server has it, and another one has no use for it

    code: object = 0
    try:
        command()
    except SystemExit as end:
        code = end.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    if sys.argv[0] == "cdc":
        _run_and_leave()
