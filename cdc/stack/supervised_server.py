"""A server of the stack, as its supervisor sees it: its files, its command, and the account that it runs under.

Some programs refuse to run as root. No account and nobody's permissions are changed for them. As root, first choice: a
user namespace in which root's own files belong to an ordinary id. Where the kernel refuses that: an ordinary account
that the machine already has, with a folder and a copy of the program of its own, since it cannot look into root's
folders.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cdc.jvm.java import only_one
from cdc.process.errors import CdcError, ConfigError, Exit

_UNSHARE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
_SHARED = Path("/var/tmp")


@dataclass(frozen=True, slots=True)
class Account:
    """How to run as an ordinary user: a ``prefix`` for the command line, or a uid and gid to change to."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    def own_folder(self, folder: Path) -> Path:
        """A folder for the account's data: ``folder`` itself, or one outside that the account can reach.

        Raises ConfigError when the one outside belongs to another account.
        """
        if self.uid is None or self.gid is None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return folder
        outside = outside_folder(folder)
        outside.mkdir(mode=0o700, exist_ok=True)
        if outside.is_symlink() or outside.stat().st_uid not in (os.getuid(), self.uid):
            raise ConfigError(f"{outside} belongs to somebody else", hint="remove it, or choose another --dir")
        os.chown(outside, self.uid, self.gid)
        return outside

    def write_secret(self, path: Path, text: str) -> None:
        """Write a new file that this account alone can read."""
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def ending_with_parent(self, argv: Sequence[str], *, death_signal: int, parent: int) -> list[str]:
        """The command line that runs ``argv`` as this account and ends it by ``death_signal`` when ``parent`` ends."""
        if self.uid is not None:
            # The kernel forgets the signal at a change of uid, so setpriv does both, in that order.
            name = signal.Signals(death_signal).name.removeprefix("SIG")
            account = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", f"--pdeathsig={name}")
            return ["setpriv", *account, "--", *argv]
        starter = str(Path(__file__).with_name("with_parent.py"))
        return [*self.prefix, sys.executable, "-I", "-S", starter, str(death_signal), str(parent), "--", *argv]

    def own_program(self, program: Path, *beside: Path) -> Path:
        """Where the account can run ``program``: as it lies, or a copy. ``beside`` are folders it needs next to it.

        Raises ConfigError when a copy is there that another account made.
        """
        if self.uid is None:
            return program
        name = hashlib.sha256(os.fsencode(program)).hexdigest()[:12]
        place = _SHARED / f"headrace-program-{name}"
        with only_one(_SHARED / f"headrace-program-{name}.lock"):
            if not (place / ".complete").exists():
                shutil.rmtree(place, ignore_errors=True)
                for folder in (program, *beside):
                    shutil.copytree(folder, place / folder.relative_to(program.parent.parent), symlinks=True)
                (place / ".complete").touch()
            elif place.stat().st_uid != os.getuid():
                raise ConfigError(f"{place} belongs to somebody else", hint="remove it and try again")
        return place / program.relative_to(program.parent.parent)


ANYBODY = Account()
"""The account of this process."""


def outside_folder(folder: Path) -> Path:
    """Where an account that cannot look into ``folder`` keeps what belongs there."""
    return _SHARED / f"headrace-data-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]}"


def ordinary_account(*, namespaces: bool = True) -> Account:
    """The account for a server that refuses root. ConfigError where there is none.

    ``namespaces=False`` skips the user namespace, for kernels that refuse it.
    """
    if os.getuid() != 0:
        return ANYBODY
    if namespaces and _can_unshare():
        return Account(prefix=(shutil.which("unshare") or "unshare", *_UNSHARE[1:]))
    found = [entry for entry in pwd.getpwall() if entry.pw_uid >= 1000]
    if not found:
        raise ConfigError(
            "PostgreSQL does not run as root, this kernel refuses user namespaces and there is no ordinary account",
            hint="run as an ordinary user",
        )
    first = min(found, key=lambda entry: entry.pw_uid)
    return Account(uid=first.pw_uid, gid=first.pw_gid)


def _can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False)
    return tried.returncode == 0


LOOPBACK = "127.0.0.1"


class StackError(CdcError):
    """A part of the local stack did not start, or is gone."""

    exit = Exit.UNAVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFiles:
    """The files and ports of one part: its own folder for data and settings, its log, and its ports by name."""

    folder: Path
    log: Path
    ports: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A server in the foreground. ``stop_signal`` asks it to end, ``death_signal`` is for when its owner died."""

    argv: Sequence[str]
    account: Account = ANYBODY
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    stop_timeout_s: float = 10.0


class StackPart(Protocol):
    """One server. ``prepare`` is safe to repeat and may take seconds. ``ready`` answers at once or within one."""

    place: PartFiles

    def prepare(self) -> Command:
        """Make folders and settings, and say how the server is run."""

    def ready(self) -> bool:
        """Whether the server answers."""

    def connection(self) -> dict[str, str]:
        """The addresses and logins for a client, as ``cdc stack status --json`` prints them."""


def refuse_taken_port(name: str, port: int) -> None:
    """ConfigError if something listens on ``port`` already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            raise ConfigError(
                f"port {port} for {name} is taken by another program",
                hint="stop that program, or let cdc stack up --free-ports choose",
            ) from None


HEAP = ("-Xms256m", "-Xmx512m")

_LOG4J = """\
Configuration:
  status: warn
  Appenders:
    Console:
      name: out
      PatternLayout: {pattern: "%d{ISO8601} %p %c{1} %m%n"}
  Loggers:
    Root:
      level: info
      AppenderRef: {ref: out}
    Logger:
"""


def log4j(quiet: Iterable[str]) -> str:
    """Log4j's settings as YAML. ``quiet``: loggers of which only warnings are shown, one at least."""
    return _LOG4J + "".join(f"      - {{name: {name}, level: warn}}\n" for name in quiet)
