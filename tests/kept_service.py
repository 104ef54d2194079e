"""A unit of systemd, kept by this process: what ``compose/systemd`` says of command, restarts and ends is done here."""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cdc.process.clock import SYSTEM_CLOCK, Clock
from tests.programs import Spawned

UNITS = Path(__file__).parents[1] / "compose" / "systemd"
_MARK = "HEADRACE_TEST_SERVICE"


class KeptService:
    """Starts the unit's ``ExecStart``, and again as ``Restart``, ``RestartSec`` and ``RestartPreventExitStatus`` say.

    ``config``: in place of ``/etc/headrace/%i.toml``. ``folder``: in place of the unit's state directory. What is left
    of the unit's processes when its first one has ended gets SIGKILL, as under ``KillMode=mixed``.
    """

    def __init__(
        self, unit: str, config: Path, folder: Path, env: Mapping[str, str], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._text = (UNITS / unit).read_text(encoding="utf-8")
        self._config, self._folder = config, folder
        self._mark = secrets.token_hex(8)
        self._env = {**env, _MARK: self._mark}
        self._clock = clock
        self._stopped = threading.Event()
        self._begun = threading.Event()
        self.codes: list[int] = []
        """Of each end. A negative one is a signal's."""
        self.runs: list[Spawned] = []
        self._thread = threading.Thread(target=self._keep, name=unit, daemon=True)

    def start(self) -> None:
        """Returns when the first process is there."""
        self._thread.start()
        self._begun.wait()

    @property
    def running(self) -> Spawned:
        """The newest process."""
        return self.runs[-1]

    @property
    def kept(self) -> bool:
        """Whether it runs, or will be started again."""
        return self._thread.is_alive()

    def stop(self) -> int:
        """SIGTERM to the first process, and ``TimeoutStopSec`` later SIGKILL. Returns its exit code."""
        self._stopped.set()
        self.running.process.terminate()
        self._thread.join(float(self.told("TimeoutStopSec")))
        self._kill_all()
        self._thread.join()
        return self.codes[-1]

    def processes(self) -> list[int]:
        """All processes of the unit."""
        return [int(place.name) for place in Path("/proc").glob("[0-9]*") if self._is_ours(place)]

    def told(self, name: str) -> str:
        """A setting's last value."""
        values: list[str] = re.findall(rf"^{name}=(.*)$", self._text, re.MULTILINE)
        return values[-1]

    def _keep(self) -> None:
        while True:
            run = self._run()
            self.runs.append(run)
            self._begun.set()
            self.codes.append(run.process.wait())
            self._kill_all()
            if self._stopped.is_set() or not self._again(self.codes[-1]):
                return
            self._clock.sleep(float(self.told("RestartSec")))

    def _again(self, code: int) -> bool:
        assert self.told("Restart") == "on-failure"
        kept = {int(one) for one in self.told("RestartPreventExitStatus").split()}
        return code != 0 and code not in kept and -code != signal.SIGTERM

    def _run(self) -> Spawned:
        program, *arguments = self.told("ExecStart").split()
        assert program == "/opt/headrace/bin/cdc"
        own = [one.replace("/etc/headrace/%i.toml", str(self._config)) for one in arguments]
        name = f"{self._mark}.{len(self.runs) + 1}"
        out, err = self._folder / f"{name}.out", self._folder / f"{name}.err"
        return Spawned.cold([sys.executable, "-m", "cdc", *own], out, err, self._env, self._folder)

    def _kill_all(self) -> None:
        assert self.told("KillMode") == "mixed"
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _is_ours(self, place: Path) -> bool:
        with suppress(OSError):
            return f"{_MARK}={self._mark}".encode() in (place / "environ").read_bytes()
        return False
