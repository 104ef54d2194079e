"""A Kafka of two brokers, of which the second can be away; both end with the test process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from cdc.jvm.jars import class_path
from cdc.stack.local import free_ports
from cdc.stack.servers import KafkaPart
from cdc.stack.supervised_server import PartFiles
from tests.waiting import wait_until

_SOON = {
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A follower hears of what it lacks by the controller's records.
    "metadata.max.idle.interval.ms": "500",
}


class Broker(KafkaPart):
    """One of several: the first is the controller too."""

    def __init__(self, folder: Path, number: int, controller: int) -> None:
        ports = free_ports(["kafka"]) | {"kafka_controller": controller}
        super().__init__(PartFiles(folder=folder, log=folder.with_suffix(".log"), ports=ports), class_path("kafka"))
        self._number = number

    @property
    def address(self) -> str:
        return self._address

    def _properties(self) -> str:
        settings = dict(line.split("=", 1) for line in super()._properties().splitlines()) | _SOON
        settings["node.id"] = str(self._number)
        if self._number > 1:
            settings |= {"process.roles": "broker", "listeners": f"BROKER://{self._address}"}
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _format(self, properties: Path) -> None:
        cluster = "headraceTwoBrokers-A"
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        subprocess.run(command, capture_output=True, check=True)


class TwoBrokers:
    """``address``: of both, as clients are told."""

    def __init__(self, address: str, second: Broker, exits: ExitStack) -> None:
        self.address = address
        self._second = second
        self._exits = exits
        self._running = exits.enter_context(_running(second))

    @contextmanager
    def one_away(self) -> Iterator[None]:
        """The second is killed, and comes back behind the body: it falls out of sync within seconds."""
        self._running.kill()
        self._running.wait(30)
        try:
            yield
        finally:
            self._running = self._exits.enter_context(_running(self._second))


@contextmanager
def two_brokers(folder: Path) -> Iterator[TwoBrokers]:
    """Started, and ended with the body."""
    controller = free_ports(["kafka_controller"])["kafka_controller"]
    brokers = [Broker(folder / f"broker{number}", number, controller) for number in (1, 2)]
    with ExitStack() as exits:
        exits.enter_context(_running(brokers[0]))
        address = ",".join(broker.address for broker in brokers)
        running = TwoBrokers(address, brokers[1], exits)
        for broker in brokers:
            wait_until(broker.ready, 90, lambda broker=broker: broker.place.log.read_text()[-2000:])  # type: ignore[misc]
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, 90, "both brokers are known")
        yield running


@contextmanager
def _running(broker: Broker) -> Iterator[subprocess.Popen[bytes]]:
    command = broker.prepare()
    argv = command.account.ending_with_parent(command.argv, death_signal=command.death_signal, parent=os.getpid())
    with broker.place.log.open("ab") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
