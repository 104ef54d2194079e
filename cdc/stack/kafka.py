"""Kafka, one node in KRaft mode, from its jars, and Kafka Connect with Debezium in its plugin folder."""

from __future__ import annotations

import os
import secrets
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc.jvm.java import LIGHT, java_executable
from cdc.stack.part import HEAP, LOOPBACK, Command, PartFiles, StackError, log4j

_QUIET = ("kafka.request.logger", "org.apache.kafka.clients", "kafka.log.LogCleaner")
_SETTINGS = {
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
    :class:`cdc.stack.part.StackPart`."""

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
        settings = _SETTINGS | {
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
    :class:`cdc.stack.part.StackPart`."""

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
