"""A Kafka that asks for TLS and a login, and a Kafka Connect beside it; both end with the test process.

One broker with two listeners: the worker keeps its own topics through the plain one, as a worker that was set up by
others would by settings of its own. Everything that Headrace configures goes through the secured one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cdc.jvm.jars import locked, resolve
from cdc.stack.local import free_ports
from cdc.stack.servers import ConnectPart, KafkaPart
from cdc.stack.supervised_server import LOOPBACK, Command, PartFiles, StackPart
from tests.tls import self_signed
from tests.waiting import wait_until

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_JARS = ("kafka", "debezium", "debezium-mariadb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """How to reach both. ``servers``: the listener that asks for a login; ``secret``: a file that the worker reads."""

    servers: str
    plain_servers: str
    authority: Path
    secret: Path
    logs: tuple[Path, ...]
    connect: str = ""

    def client(self) -> dict[str, str]:
        """``[log.client]``, without the password."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "cdc",
            "ssl.ca.location": str(self.authority),
        }


@contextmanager
def secured_servers(folder: Path, password: str) -> Iterator[Secured]:
    """Both servers, answering, while the body runs."""
    jars = _jars(*_JARS)
    with secured_broker(folder, password) as alone:
        plugins = {name: jars[name] for name in _JARS[1:]}
        ports = {**free_ports(["connect"]), "kafka": int(alone.plain_servers.rpartition(":")[2])}
        worker = ConnectPart(
            PartFiles(folder=folder / "connect", log=folder / "connect.log", ports=ports), jars["kafka"], plugins
        )
        with _running(worker, worker.prepare()):
            yield replace(alone, connect=worker.connection()["url"], logs=(*alone.logs, worker.place.log))


@contextmanager
def secured_broker(folder: Path, password: str) -> Iterator[Secured]:
    """The broker alone, answering, while the body runs."""
    ports = free_ports(["kafka", "kafka_controller", "secure"])
    certificate = self_signed(folder)
    (folder / "broker.pem").write_text(certificate.key.read_text() + certificate.made.read_text(), encoding="utf-8")
    (folder / "kafka.properties").write_text(f"password={password}\n", encoding="utf-8")
    place = PartFiles(folder=folder / "kafka", log=folder / "kafka.log", ports=ports)
    broker = KafkaPart(place, _jars("kafka")["kafka"])
    with _running(broker, _with_secured_listener(broker, ports, folder, password)):
        yield Secured(
            servers=f"{LOOPBACK}:{ports['secure']}",
            plain_servers=f"{LOOPBACK}:{ports['kafka']}",
            authority=certificate.made,
            secret=folder / "kafka.properties",
            logs=(place.log,),
        )


def _jars(*names: str) -> dict[str, Path]:
    return resolve([found for name, found in locked().items() if name in names])


def _with_secured_listener(broker: KafkaPart, ports: dict[str, int], folder: Path, password: str) -> Command:
    """The broker's command, its settings rewritten to have one more listener."""
    command = broker.prepare()
    properties = broker.place.folder / "server.properties"
    settings = dict(line.split("=", 1) for line in properties.read_text(encoding="utf-8").splitlines())
    address = f"SECURE://{LOOPBACK}:{ports['secure']}"
    for name in ("listeners", "advertised.listeners"):
        settings[name] += f",{address}"
    settings["listener.security.protocol.map"] += ",SECURE:SASL_SSL"
    settings["ssl.keystore.type"] = "PEM"
    settings["ssl.keystore.location"] = str(folder / "broker.pem")
    settings["listener.name.secure.sasl.enabled.mechanisms"] = "PLAIN"
    settings["listener.name.secure.plain.sasl.jaas.config"] = f'{_PLAIN} user_cdc="{password}";'
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return command


@contextmanager
def _running(part: StackPart, command: Command) -> Iterator[None]:
    with part.place.log.open("wb") as log:
        process = subprocess.Popen(
            command.account.ending_with_parent(command.argv, death_signal=command.death_signal, parent=os.getpid()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: process.poll() is not None or part.ready(), 60, lambda: _end_of(part.place.log))
        assert process.poll() is None, _end_of(part.place.log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(command.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-3000:]
