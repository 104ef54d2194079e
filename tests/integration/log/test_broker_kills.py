"""A broker is killed and started: whoever asks for a topic meanwhile hears of it, or that nothing is known."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from cdc.capture.topic_specs import pipeline_topic_specs
from cdc.jvm.jars import class_path
from cdc.process.errors import LogError, TopicError
from cdc.record.topic_names import dead_topic, state_topic, views_topic
from cdc.settings.model import Settings, parse
from cdc.stack.local import free_ports
from cdc.stack.servers import KafkaPart
from cdc.stack.supervised_server import PartFiles
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import KafkaCompactedTopic, known_partitions
from connectors.kafka.dead_letters import DeadLetterTopic
from connectors.views.view_topics import known_views
from tests.waiting import wait_until

VIEW, DOCUMENT = b'{"what":"none"}', b"{}"


class _Broker:
    """One that is killed and started, with its topics."""

    def __init__(self, folder: Path) -> None:
        place = PartFiles(folder=folder / "kafka", log=folder / "kafka.log", ports=free_ports())
        self._part = KafkaPart(place, class_path("kafka"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return self._part.connection()["bootstrap_servers"]

    def start(self) -> None:
        command = self._part.prepare()
        argv = command.account.ending_with_parent(command.argv, death_signal=command.death_signal, parent=os.getpid())
        with self._part.place.log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        wait_until(self._part.ready, 90, lambda: self._part.place.log.read_text()[-2000:])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[_Broker]:
    running = _Broker(tmp_path)
    running.start()
    try:
        yield running
    finally:
        running.kill()


@contextmanager
def asking(questions: dict[str, Callable[[], object]]) -> Iterator[tuple[dict[str, int], list[str]]]:
    """Ask each of these again and again, in a thread of its own. How often each was answered, and what was false."""
    answered, false, over = dict.fromkeys(questions, 0), [], threading.Event()

    def ask(name: str, question: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                if question():
                    answered[name] += 1
                else:
                    false.append(f"{name}: nothing is there")
            except TopicError as error:
                false.append(f"{name}: {error.message}")
            except LogError:
                continue

    threads = [threading.Thread(target=ask, args=one) for one in questions.items()]
    for thread in threads:
        thread.start()
    try:
        yield answered, false
    finally:
        over.set()
        for thread in threads:
            thread.join()


def questions_of(settings: Settings) -> dict[str, Callable[[], object]]:
    """True where the answer is the right one."""
    log, views = settings.log, views_topic(settings.name)

    def partitions() -> list[int]:
        consumer = Consumer(reader_config(log))
        try:
            return known_partitions(consumer, views, log)
        finally:
            consumer.close()

    return {
        "views": lambda: known_views(settings) is not None and KafkaCompactedTopic(log, views).read(),
        "facts": lambda: TopicAdmin(log).describe([views]),
        "partitions": partitions,
        "state": lambda: KafkaCompactedTopic(log, state_topic(settings.name)).read(),
        "letters": lambda: list(DeadLetterTopic(log, dead_topic(settings.name)).read()) == [],
        "ends": lambda: TopicAdmin(log).end_offsets({views: 1}),
    }


@pytest.mark.slow
def test_y7_a_broker_that_starts_hides_no_topic(broker: _Broker) -> None:
    settings = parse(
        {
            "name": "shop",
            "source": {"dsn": "host=none", "tables": ["public.t"]},
            "log": {"bootstrap_servers": broker.servers, "partitions": 1},
        }
    )
    specs = pipeline_topic_specs(settings.log, settings.name)
    [state] = [spec for spec in specs if spec.topic == "shop.state"]
    TopicAdmin(settings.log).create([*specs, replace(state, topic=views_topic("shop"))])
    for topic in ("shop.state", views_topic("shop")):
        KafkaCompactedTopic(settings.log, topic).write([(VIEW, DOCUMENT)])
    with asking(questions_of(settings)) as (answered, false):
        wait_until(lambda: min(answered.values()) > 0 or false, 120, lambda: answered)
        broker.kill()
        broker.start()
        answered.update(dict.fromkeys(answered, 0))
        wait_until(lambda: min(answered.values()) > 0 or false, 120, lambda: answered)
    assert false == []
