"""The one process that owns the servers: ``python -m cdc.stack.supervisor DIR``, its plan in ``DIR/plan.json``.

Every server is its foreground child and has one thread here, which prepares it, starts it, waits until it
answers and then until it ends. (The kernel sends a child its death signal when the *thread* that started it
ends, so that thread must live as long as the server.) The main thread watches the starter and ``DIR/control``,
a pipe in the file system that takes lines: ``start PART``, ``stop PART``, ``kill PART``, ``detach``, ``end``.
It writes its knowledge to ``DIR/status.json``, whole at every change.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError
from cdc.stack.servers import NEEDS, PARTS, make_part, own_ports
from cdc.stack.supervised_server import Command, StackError, StackPart, refuse_taken_port

READY_TIMEOUT_S = 120.0
WATCH_S = 0.2
LOG_TAIL_BYTES = 400


@dataclass(slots=True, kw_only=True)
class PartStatus:
    """The state of one part. ``state``: starting, ready, stopped, failed. ``run`` counts its starts from 1."""

    state: str
    run: int = 1
    pid: int | None = None
    error: str = ""
    hint: str = ""
    exit: int = 0
    connection: dict[str, str] = field(default_factory=dict)


class Server:
    """One part and the thread that owns its process."""

    def __init__(self, name: str, part: StackPart, supervisor: Supervisor, run: int) -> None:
        self.name = name
        self.part = part
        self.status = PartStatus(state="starting", run=run)
        self._supervisor = supervisor
        self._process: subprocess.Popen[bytes] | None = None
        self._command: Command | None = None
        self._asked_to_stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which starts the process."""
        self._thread.start()

    def stop(self, *, kill: bool = False) -> None:
        """Ask the server to end. ``kill``: at once. Does not wait."""
        self._asked_to_stop.set()
        process, command = self._process, self._command
        if process is not None and command is not None and process.poll() is None:
            process.send_signal(command.death_signal if kill else command.stop_signal)

    def join(self, timeout_s: float) -> None:
        """Wait for the end that :meth:`stop` asked for. Past ``timeout_s`` (or the server's own) it is killed."""
        limit_s = min(timeout_s, self._command.stop_timeout_s) if self._command else timeout_s
        self._thread.join(limit_s)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()
            self._thread.join(5)

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether the part was asked to stop."""
        return self._asked_to_stop.is_set()

    def _live(self) -> None:
        try:
            self._supervisor.wait_for(NEEDS.get(self.name, ()))
            for port in own_ports(self.name):
                refuse_taken_port(self.name, self.part.place.ports[port])
            self._command = self.part.prepare()
            self._run(self._command)
        except CdcError as error:
            self._fail(error)
        except OSError as error:
            self._fail(StackError(f"{self.name} could not be started: {error}"))

    def _run(self, command: Command) -> None:
        argv = command.account.ending_with_parent(command.argv, death_signal=command.death_signal, parent=os.getpid())
        with self.part.place.log.open("ab") as log:
            if self._asked_to_stop.is_set():
                return self._note("stopped")
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        self.status.pid = self._process.pid
        self._wait_until_ready(self._process)
        if self._process.poll() is None:
            self.status.connection = self.part.connection()
            self._note("ready")
        code = self._process.wait()
        self.status.pid = None
        if not self._asked_to_stop.is_set():
            raise StackError(
                f"{self.name} ended by itself with exit code {code}: {self._last_words()}", hint=self._see()
            )
        return self._note("stopped")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        clock = self._supervisor.clock
        timeout_s = self._supervisor.ready_timeout_s
        deadline = clock.monotonic() + timeout_s
        while process.poll() is None and not self._asked_to_stop.is_set():
            if self.part.ready():
                return
            if clock.monotonic() > deadline:
                process.kill()
                process.wait()
                raise StackError(f"{self.name} did not answer within {timeout_s:.0f} s", hint=self._see())
            clock.sleep(0.05)

    def _note(self, state: str) -> None:
        self.status.state = state
        self._supervisor.write_status()

    def _fail(self, error: CdcError) -> None:
        self.status.error, self.status.hint, self.status.exit = error.message, error.hint, int(error.exit)
        self._note("failed")

    def _see(self) -> str:
        return f"see {self.part.place.log}"

    def _last_words(self) -> str:
        text = self.part.place.log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else "it said nothing"


class Supervisor:
    """The servers of one folder."""

    def __init__(self, folder: Path, plan: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._folder = folder
        self._plan = plan
        self.ready_timeout_s = float(plan.get("ready_timeout_s", READY_TIMEOUT_S))
        self._servers: dict[str, Server] = {}
        self._lock = threading.Lock()
        self._tied = True
        self._ended = False
        self._starter = os.getppid()

    def run(self) -> None:
        """Start what the plan says and stay until a stop is asked for, or until the starter is gone."""
        control = self._open_control()
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        self.write_status()
        for name in self._plan["start"]:
            self.obey(f"start {name}")
        try:
            self._watch(control)
        finally:
            starter_gone = self._tied and not self._ended
            self._end(kill=starter_gone)

    def _watch(self, control: int) -> None:
        unread = b""
        while not self._ended:
            # The pipe from the starter ends with it. Its pid changes even where a forked child holds the pipe.
            watched = [control, sys.stdin.fileno()] if self._tied else [control]
            readable, _, _ = select.select(watched, [], [], WATCH_S)
            if self._tied and (os.getppid() != self._starter or (0 in readable and not os.read(0, 1))):
                return
            if control in readable:
                unread += os.read(control, 4096)
                *lines, unread = unread.split(b"\n")
                for line in lines:
                    self.obey(line.decode("utf-8", "replace"))

    def obey(self, line: str) -> None:
        """Carry out one line of ``control``. A line that makes no sense is noted in the log and nothing else."""
        match line.split():
            case ["start", name] if name in PARTS:
                self._start(name)
            case ["stop" | "kill" as verb, name] if name in self._servers:
                self._servers[name].stop(kill=verb == "kill")
            case ["detach"]:
                self._tied = False
                self.write_status()
            case ["end"]:
                self._ended = True
            case _:
                sys.stderr.write(f"not understood: {line!r}\n")

    def wait_for(self, names: tuple[str, ...]) -> None:
        """Return when these parts answer. StackError if one cannot."""
        while True:
            states = {name: self._servers[name].status.state if name in self._servers else "absent" for name in names}
            broken = [name for name, state in states.items() if state not in ("starting", "ready")]
            if broken:
                raise StackError(f"{broken[0]} is needed first and is not running")
            if all(state == "ready" for state in states.values()):
                return
            self.clock.sleep(0.05)

    def write_status(self) -> None:
        """Write the state of all parts to ``status.json``, whole."""
        with self._lock:
            document = {
                "pid": os.getpid(),
                "tied": self._tied,
                "ports": self._plan["ports"],
                "start": self._plan["start"],
                "parts": {name: asdict(server.status) for name, server in sorted(self._servers.items())},
            }
            draft = self._folder / "status.json.part"
            draft.write_bytes(orjson.dumps(document))
            draft.replace(self._folder / "status.json")

    def _start(self, name: str) -> None:
        running = self._servers.get(name)
        if running is not None and running.alive:
            # One that has just failed may still be ending: to leave it at that would be a start that never comes.
            if not running.stopping and running.status.state != "failed":
                return
            running.join(self.ready_timeout_s)
        # Read anew: jars of a part that joins later were fetched since.
        jars = {key: Path(path) for key, path in read_plan(self._folder)["jars"].items()}
        part = make_part(name, self._folder, self._plan["ports"], jars, durable=self._plan["durable"])
        run = running.status.run + 1 if running is not None else 1
        self._servers[name] = Server(name, part, self, run)
        self.write_status()
        self._servers[name].start()

    def _end(self, *, kill: bool) -> None:
        for server in self._servers.values():
            server.stop(kill=kill)
        for server in self._servers.values():
            server.join(5 if kill else self.ready_timeout_s)
        (self._folder / "control").unlink(missing_ok=True)
        (self._folder / "status.json").unlink(missing_ok=True)

    def _open_control(self) -> int:
        path = self._folder / "control"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # Open for both, so that it never ends when a writer goes.
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._ended = True


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan of the starter: ``ports`` by name, folders of ``jars`` by set, parts to
    ``start``, data ``durable``, ``ready_timeout_s`` for each part."""
    plan: dict[str, Any] = orjson.loads((folder / "plan.json").read_bytes())
    return plan


def own(folder: Path, clock: Clock) -> IO[str]:
    """The lock on the folder, ours until the file is closed. SystemExit where another supervisor has it."""
    lock = (folder / "lock").open("w")
    deadline = clock.monotonic() + 1  # somebody who only looks holds it for a moment
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock.monotonic() > deadline:
                sys.exit("another supervisor owns this folder")
            clock.sleep(0.02)
        else:
            return lock


def main() -> None:
    """Supervise the stack in the folder that the first argument names."""
    folder = Path(sys.argv[1])
    with own(folder, SYSTEM_CLOCK):
        Supervisor(folder, read_plan(folder)).run()


if __name__ == "__main__":
    main()
