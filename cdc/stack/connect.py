"""Kafka Connect, one distributed worker, with Debezium in its plugin folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import requests

from cdc.jvm.java import LIGHT, java_executable
from cdc.stack.javalogs import HEAP, log4j
from cdc.stack.part import LOOPBACK, Command, PartFiles

_TUNING = "KAFKA_JVM_PERFORMANCE_OPTS"
"""As for Connect's own start script: options in the place of ours, which are for a worker that runs for minutes."""
_SETTINGS = {
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
        settings = _SETTINGS | {
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
