"""The stack as commands and tests see it: start it in a folder, ask what it offers, stop it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from cdc.jvm.jars import Progress, resolve
from cdc.jvm.java import only_one
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, Exit
from cdc.stack.servers import NEEDS, PARTS, jar_sets, own_ports
from cdc.stack.supervised_server import LOOPBACK, StackError, outside_folder, refuse_taken_port
from cdc.stack.supervisor import READY_TIMEOUT_S

Connections = dict[str, dict[str, str]]
"""part -> what its clients need, as ``cdc stack status --json`` prints it."""


class LocalStack:
    """The stack in one folder, started by this process or another. Only one supervisor at a time owns a folder."""

    def __init__(self, folder: Path, *, clock: Clock = SYSTEM_CLOCK, ready_timeout_s: float = READY_TIMEOUT_S) -> None:
        self.folder = folder.resolve()
        self._ready_timeout_s = ready_timeout_s
        self._clock = clock
        self._supervisor: subprocess.Popen[bytes] | None = None

    def start(
        self,
        parts: Iterable[str] = (),
        *,
        ports: Mapping[str, int] | None = None,
        progress: Progress | None = None,
        durable: bool = True,
    ) -> None:
        """Start a supervisor, tied to this process: when we end, however we end, it ends its servers.

        Fetches the jars that ``parts`` need. Returns before the parts answer: see :meth:`wait`. ``ports`` by name, free
        ones where not given. The ports of an earlier run of this folder stay. Data that is not ``durable`` outlives
        killed servers but not a crash of the machine. Tests are quicker for it. Raises ConfigError when a stack runs in
        this folder already.
        """
        wanted = tuple(parts)
        if self.running():
            raise ConfigError(f"a stack runs in {self.folder} already", hint=f"cdc stack down --dir {self.folder}")
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        plan_file = self.folder / "plan.json"
        chosen = dict(ports) if ports is not None else self._earlier_ports() or free_ports()
        for name in wanted:
            for port in own_ports(name):
                refuse_taken_port(name, chosen[port])
        jars = {name: str(place) for name, place in resolve(jar_sets(wanted), progress=progress).items()}
        plan = {"ports": chosen, "jars": jars, "start": wanted, "durable": durable}
        plan_file.write_bytes(orjson.dumps(plan | {"ready_timeout_s": self._ready_timeout_s}))
        (self.folder / "status.json").unlink(missing_ok=True)
        with (self.folder / "logs" / "supervisor.log").open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "cdc.stack.supervisor", str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal is ours to pass on
            )
        self._until(
            lambda: (self.folder / "status.json").exists() or not self._supervising(), "the supervisor to begin"
        )

    def wait(self, *parts: str, watch: Callable[[Mapping[str, str]], None] | None = None) -> Connections:
        """Return when these parts (all started ones, if none is named) answer, with what clients need.

        StackError in the part's own words if one cannot start. ``watch`` is shown the states meanwhile.
        """

        def settled() -> bool:
            states = self._states(parts)
            if watch is not None:
                watch({name: state["state"] for name, state in states.items()})
            _raise_fault(states)
            return all(state["state"] == "ready" for state in states.values())

        self._until(settled, f"{', '.join(parts) or 'the stack'} to answer")
        return self.connections()

    def ensure(self, *parts: str) -> Connections:
        """Start what of these is not running, and wait for all of them."""
        status = self.status()["parts"]
        missing = [name for name in parts if status.get(name, {}).get("state") not in ("starting", "ready")]
        self._fetch_for(missing)
        for name in sorted(missing, key=PARTS.index):
            for needed in NEEDS.get(name, ()):
                self.ensure(needed)
            self.start_part(name)
        return self.wait(*parts)

    def start_part(self, name: str) -> None:
        """Start a part that ended. Its data and ports stay. For one that runs: :meth:`ensure`."""
        earlier = self._run_of(name)
        self._tell(f"start {name}")
        self._until(lambda: self._run_of(name) > earlier, f"{name} to begin")

    def stop_part(self, name: str, *, kill: bool = False) -> None:
        """End one part, cleanly or (``kill``) at once, and return when it has ended."""
        self._tell(f"{'kill' if kill else 'stop'} {name}")
        self._until(lambda: self._states((name,))[name]["state"] in ("stopped", "failed"), f"{name} to end")

    def pid_of(self, name: str) -> int:
        """The server's process, for tests that pause or kill it themselves. StackError if there is none."""
        pid = self._states((name,))[name].get("pid")
        if pid is None:
            raise StackError(f"{name} is not running")
        return int(pid)

    def detach(self) -> None:
        """Let the supervisor live on without us."""
        self._tell("detach")
        self._until(lambda: not self.status()["tied"], "the supervisor to stay")
        if self._supervisor is not None and self._supervisor.stdin is not None:
            self._supervisor.stdin.close()

    def stop(self) -> None:
        """End all parts cleanly and return when nothing is left. Nothing to do where nothing runs."""
        if self.running():
            pid = self.status()["pid"]
            self._tell("end")
            self._until(lambda: not self.running(), "the stack to end")
            if self._supervisor is None:
                self._until(lambda: not _exists(pid), "the supervisor to end")
        if self._supervisor is not None:
            self._supervisor.wait()
            if self._supervisor.stdin is not None:
                self._supervisor.stdin.close()
            self._supervisor = None

    def abandon(self) -> None:
        """Kill a supervisor that we started: it kills its servers. For when :meth:`stop` is too slow."""
        if self._supervisor is not None and self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
            self._supervisor.wait()
            self._supervisor = None

    def wipe(self) -> None:
        """Stop, and remove all data. Files of others stay, and then the folder too."""
        self.stop()
        shutil.rmtree(outside_folder(self.folder / "postgres"), ignore_errors=True)
        for name in (*PARTS, "logs", "warehouse", "checkpoints", "views", "streams"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("pgpass", "cdc.toml", "plan.json", "plan.lock", "lock"):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def running(self) -> bool:
        """Whether a supervisor owns the folder. True also while it is starting or ending its servers."""
        try:
            with (self.folder / "lock").open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def status(self) -> dict[str, Any]:
        """The supervisor's own words: pid, tied, ports, parts. StackError where none runs."""
        try:
            document: dict[str, Any] = orjson.loads((self.folder / "status.json").read_bytes())
        except FileNotFoundError:
            document = {}
        if not document or not self.running():
            raise StackError(f"no stack runs in {self.folder}", hint=f"cdc stack up --dir {self.folder}")
        return document

    def connections(self) -> Connections:
        """The addresses of every part that answers, and a folder for the warehouse."""
        parts = self.status()["parts"]
        found: Connections = {name: parts[name]["connection"] for name in PARTS if _is_ready(parts.get(name))}
        found["warehouse"] = {"path": str(self.folder / "warehouse")}
        return found

    def _states(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        status = self.status()
        wanted = tuple(names) or dict.fromkeys([*status["start"], *status["parts"]])
        return {name: status["parts"].get(name, {"state": "absent"}) for name in wanted}

    def _run_of(self, name: str) -> int:
        return int(self._states((name,))[name].get("run", 0))

    def _fetch_for(self, parts: Iterable[str]) -> None:
        places = resolve(jar_sets(parts))
        plan_file = self.folder / "plan.json"
        with only_one(self.folder / "plan.lock"):
            plan = orjson.loads(plan_file.read_bytes())
            plan["jars"] |= {name: str(place) for name, place in places.items()}
            draft = plan_file.with_suffix(".part")
            draft.write_bytes(orjson.dumps(plan))
            draft.replace(plan_file)

    def _earlier_ports(self) -> dict[str, int] | None:
        """The ports of this folder's last run, so that settings written then still fit."""
        try:
            ports: dict[str, int] = orjson.loads((self.folder / "plan.json").read_bytes())["ports"]
        except FileNotFoundError:
            return None
        return ports if set(ports) == set(DEFAULT_PORTS) else None

    def _tell(self, line: str) -> None:
        try:
            control = os.open(self.folder / "control", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            raise StackError(f"no stack runs in {self.folder}", hint=f"cdc stack up --dir {self.folder}") from None
        with os.fdopen(control, "wb") as pipe:
            pipe.write(line.encode() + b"\n")

    def _supervising(self) -> bool:
        return self._supervisor is None or self._supervisor.poll() is None

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = self._clock.monotonic() + self._ready_timeout_s + 30
        while not reached():
            if not self._supervising():
                raise StackError("the stack's supervisor ended", hint=f"see {self.folder}/logs/supervisor.log")
            if self._clock.monotonic() > deadline:
                raise StackError(f"gave up waiting for {what}", hint=f"see {self.folder}/logs")
            self._clock.sleep(0.02)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_ready(status: Mapping[str, Any] | None) -> bool:
    return status is not None and status["state"] == "ready"


def _raise_fault(states: Mapping[str, Mapping[str, Any]]) -> None:
    for state in states.values():
        if state["state"] == "failed":
            raise _PartFault(state["error"], hint=state["hint"], exit=Exit(state["exit"]))


class _PartFault(CdcError):
    """The failure that stopped a part, in the supervisor's words."""


DEFAULT_PORTS: dict[str, int] = {
    "postgres": 5432,
    "kafka": 9092,
    "kafka_controller": 9093,
    "redis": 6379,
    "opensearch": 9200,
    "opensearch_transport": 9300,
    "connect": 8083,
}

# Below the kernel's range for outgoing connections: a client's own port never takes a server's place.
_FREE = range(20_000, 32_000)
# OpenSearch's runner refuses a higher one.
_FREE_OPENSEARCH = range(9_201, 9_300)
_SHARES = 8


def free_ports(names: Iterable[str] = DEFAULT_PORTS, *, share: int | None = None) -> dict[str, int]:
    """A free port for every name, chosen at random so that two stacks started at once seldom meet.

    ``share``: a number from 0 on. Stacks with different ones, up to eight, never choose the same port, and one without
    a share takes theirs last: a server may be started long after the choice. Raises ConfigError when a range has no
    free port.
    """
    chosen: dict[str, int] = {}
    for name in names:
        ports = _FREE_OPENSEARCH if name == "opensearch" else _FREE
        free = (port for port in _candidates(ports, share) if port not in chosen.values() and _is_free(port))
        port = next(free, None)
        if port is None:
            raise ConfigError(f"no free port for {name} between {ports[0]} and {ports[-1]}")
        chosen[name] = port
    return chosen


def _candidates(ports: range, share: int | None) -> list[int]:
    number = _SHARES if share is None else share % _SHARES
    own = ports[number :: _SHARES + 1]
    others = [port for port in ports if port not in own] if share is None else []
    return [*_drawn(own), *_drawn(others)]


def _drawn(ports: Sequence[int]) -> list[int]:
    return random.SystemRandom().sample(ports, len(ports))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
