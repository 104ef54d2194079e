"""The stack of the tests as containers: the compose file itself, on free ports."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import pytest
from psycopg.conninfo import make_conninfo
from testcontainers.compose import DockerCompose

from cdc.stack.catalog import PARTS
from cdc.stack.local import Connections
from cdc.stack.ports import free_ports

COMPOSE = Path(__file__).parent.parent / "compose"


class ContainerStack:
    """What the compose file describes, part by part; all removed at the end, volumes too."""

    def __init__(self, folder: Path) -> None:
        if not engine_answers():
            pytest.exit("--stack docker needs a Docker engine, and none answers", returncode=4)
        self._folder = folder
        self._ports = free_ports(PARTS)
        self._running: set[str] = set()
        password = secrets.token_hex(16)
        self._passfile = folder / "pgpass"
        self._write_secret(self._passfile, f"127.0.0.1:*:*:postgres:{password}\n")
        environment = {f"CDC_{part.upper()}_PORT": port for part, port in self._ports.items()}
        lines = [f"COMPOSE_PROJECT_NAME=headrace-{secrets.token_hex(4)}", f"CDC_SOURCE_PASSWORD={password}"]
        self._env_file = folder / "compose.env"
        self._write_secret(self._env_file, "\n".join([*lines, *(f"{k}={v}" for k, v in environment.items())]) + "\n")

    def __enter__(self) -> ContainerStack:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._compose(*PARTS).stop(down=True)

    def ensure(self, *parts: str) -> Connections:
        missing = [part for part in parts if part not in self._running]
        if missing:
            self._compose(*missing).start()
            self._running.update(missing)
        return {part: self._connection(part) for part in self._running}

    def start_part(self, name: str) -> None:
        self._compose(name).start()
        self._running.add(name)

    def stop_part(self, name: str, *, kill: bool = False) -> None:
        command = self._compose(name).compose_command_property
        subprocess.run([*command, "kill" if kill else "stop", name], check=True, cwd=COMPOSE)
        self._running.discard(name)

    def _compose(self, *parts: str) -> DockerCompose:
        return DockerCompose(
            context=COMPOSE,
            compose_file_name="compose.yaml",
            env_file=str(self._env_file),
            services=list(parts),
            profiles=["connect"],
            wait=True,
        )

    def _connection(self, part: str) -> dict[str, str]:
        address = f"127.0.0.1:{self._ports[part]}"
        match part:
            case "postgres":
                address = f"host=127.0.0.1 port={self._ports[part]} dbname=postgres user=postgres"
                return {"dsn": make_conninfo(address, passfile=str(self._passfile))}
            case "kafka":
                return {"bootstrap_servers": address}
            case "redis":
                return {"url": f"redis://{address}/0"}
            case _:
                return {"url": f"http://{address}"}

    @staticmethod
    def _write_secret(path: Path, text: str) -> None:
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(text)


def engine_answers() -> bool:
    """Whether a Docker engine is there, not just its client."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=30).returncode == 0
