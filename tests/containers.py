"""The stack of the tests as containers: the compose file itself, on free ports."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest
from psycopg.conninfo import make_conninfo
from testcontainers.compose import DockerCompose

from cdc.jvm.jars import class_path
from cdc.stack.local import Connections, free_ports
from cdc.stack.servers import PARTS

COMPOSE = Path(__file__).parent.parent / "compose"
# Where a part listens for the other containers.
_INSIDE = {
    "postgres": "postgres:5432",
    "kafka": "kafka:19092",
    "redis": "redis:6379",
    "opensearch": "opensearch:9200",
    "connect": "connect:8083",
}


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
        self._plugins = folder / "plugins"
        self._plugins.mkdir()
        variables = {
            "COMPOSE_PROJECT_NAME": f"headrace-{secrets.token_hex(4)}",
            "CDC_SOURCE_PASSWORD": password,
            "CDC_CONNECT_PLUGINS": self._plugins,
            **{f"CDC_{part.upper()}_PORT": port for part, port in self._ports.items()},
        }
        self._variables = tuple(variables)
        self._env_file = folder / "compose.env"
        self._write_secret(self._env_file, "".join(f"{name}={value}\n" for name, value in variables.items()))

    def __enter__(self) -> ContainerStack:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._compose().stop(down=True)

    def ensure(self, *parts: str) -> Connections:
        missing = [part for part in parts if part not in self._running]
        if "connect" in missing:
            self._lay_plugins()
        if missing:
            self._compose(*missing).start()
            self._running.update(missing)
        if "postgres" in missing:
            self._let_standbys_in()
        return {part: self._connection(part) for part in self._running}

    def start_part(self, name: str) -> None:
        self._compose(name).start()
        self._running.add(name)

    def stop_part(self, name: str, *, kill: bool = False) -> None:
        self._tell("kill" if kill else "stop", name)
        self._running.discard(name)

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        self._tell("pause", name)
        try:
            yield
        finally:
            self._tell("unpause", name)

    def inside(self, name: str) -> str:
        return _INSIDE[name]

    def hand_to_connect(self, name: str, text: str) -> str:
        path = f"/tmp/{name}"
        self._tell("exec", "-T", "connect", "sh", "-c", f"umask 077; cat > {path}", given=text)
        return path

    def _tell(self, *words: str, given: str = "") -> None:
        command = [*self._compose().compose_command_property, *words]
        subprocess.run(command, input=given, text=True, check=True, cwd=COMPOSE)

    def _let_standbys_in(self) -> None:
        """Some tests make a standby on this machine; the image lets clients in from outside, and no standby."""
        line = "host replication all all scram-sha-256"
        script = f'grep -qx "{line}" "$PGDATA/pg_hba.conf" || echo "{line}" >> "$PGDATA/pg_hba.conf"; pg_ctl reload'
        self._tell("exec", "-T", "--user", "postgres", "postgres", "sh", "-c", script)

    def _lay_plugins(self) -> None:
        """A container sees no link that leads out of the folder, so the jars are copied."""
        for name in ("debezium", "debezium-mariadb"):
            shutil.copytree(class_path(name), self._plugins / name, dirs_exist_ok=True)

    def _compose(self, *parts: str) -> DockerCompose:
        compose = DockerCompose(
            context=COMPOSE,
            compose_file_name="compose.yaml",
            env_file=str(self._env_file),
            services=list(parts),
            profiles=["connect"],
            wait=True,
        )
        # What is exported, as compose/README.md has it, would win over the file.
        unset = [word for name in self._variables for word in ("-u", name)]
        compose.compose_command_property = ["env", *unset, *compose.compose_command_property]
        return compose

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
