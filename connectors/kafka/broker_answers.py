"""A broker's word doubted for a while: whether it answers, whether an error passes, and whether a topic is gone."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException

from cdc.capture.topic_specs import TopicSpec
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import ConfigError, LogError, TopicError
from cdc.process.untrusted_text import quoted
from cdc.record.progress import Offsets
from cdc.settings.client_options import unused_options
from cdc.settings.model import LogSettings
from connectors.kafka.clients import reader_config
from connectors.kafka.topic_problems import TopicFacts

_DOUBTED_S, _EVERY_S = 5.0, 0.5


def stays_gone(topics: Collection[str], names: Callable[[], Collection[str]], clock: Clock = SYSTEM_CLOCK) -> bool:
    """Whether one of these topics is gone for five seconds on end. ``names``: of the topics that there are. It is not
    known where that raises LogError."""
    until_s = clock.monotonic() + _DOUBTED_S
    while True:
        try:
            if set(topics) <= set(names()):
                return False
        except LogError:
            return False
        if clock.monotonic() >= until_s:
            return True
        clock.sleep(_EVERY_S)


class DescribesTopics(Protocol):
    """The part of :class:`connectors.kafka.admin.TopicAdmin` that is used here."""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """The facts of those topics that exist, as a broker has it."""


class AsksForEnds(Protocol):
    """The part of the same that is used here."""

    def end_offsets(self, partitions: Mapping[str, int]) -> Offsets:
        """The ends of all partitions of these topics. TopicError where a broker does not know one."""


class MakesTopics(DescribesTopics, Protocol):
    """The same, and what makes topics."""

    def create(self, specs: Iterable[TopicSpec]) -> list[str]:
        """Make those that are missing."""


def facts_of_made(
    admin: DescribesTopics, topics: Iterable[str], clock: Clock = SYSTEM_CLOCK
) -> Mapping[str, TopicFacts]:
    """The facts of topics that were made. One is left out that is gone for five seconds on end: a broker answers a
    question that it was asked while it stood still before it hears of the topics made meanwhile.

    LogError when no broker answers.
    """
    until_s = clock.monotonic() + _DOUBTED_S
    wanted = set(topics)
    found = admin.describe(wanted)
    while (missing := wanted - found.keys()) and clock.monotonic() < until_s:
        clock.sleep(_EVERY_S)
        found |= admin.describe(missing)
    return found


def ends_of_made(admin: AsksForEnds, partitions: Mapping[str, int], clock: Clock = SYSTEM_CLOCK) -> Offsets:
    """The ends of topics that were made. Raises TopicError where a broker says for five seconds on end that one of them
    is not there, and LogError when none answers."""
    until_s = clock.monotonic() + _DOUBTED_S
    while True:
        try:
            return admin.end_offsets(partitions)
        except TopicError:
            if clock.monotonic() >= until_s:
                raise
        clock.sleep(_EVERY_S)


def make_known(
    admin: MakesTopics, specs: Sequence[TopicSpec], clock: Clock = SYSTEM_CLOCK
) -> tuple[list[str], Mapping[str, TopicFacts]]:
    """Make topics, unless they are there. The names of those that were made, and the facts of all.

    LogError where a broker says then that there is no such topic: it lags behind, which passes, and is no fault of the
    topic's table.
    """
    made = admin.create(specs)
    found = facts_of_made(admin, [spec.topic for spec in specs], clock)
    unknown = [spec.topic for spec in specs if spec.topic not in found]
    if unknown:
        raise LogError(
            f"the topic {unknown[0]} is made, and a broker does not know it yet",
            hint="a broker that lags behind comes to know it by itself; cdc check says whether it is there",
        )
    return made, found


log = logging.getLogger(__name__)
TIMEOUT_S = 5.0
_CORRELATION = b"cdc1"
# ApiVersions, version 0: every broker answers it, before any login. The line ends in the client's id let a server that
# reads lines (Redis, HTTP) answer too, where it would wait for more.
_CLIENT_ID = b"\r\ncdc\r\n"
_REQUEST = b"\x00\x12\x00\x00" + _CORRELATION + len(_CLIENT_ID).to_bytes(2, "big") + _CLIENT_ID
_PLAIN = ("", "plaintext", "sasl_plaintext")


def require_broker(settings: LogSettings) -> None:
    """Return when one of the bootstrap servers takes a connection and does not answer as something else than Kafka.

    A silent server passes: the client waits for a busy broker. LogError names the servers and
    what is wrong with each, ConfigError one that is not host:port, or an option that the client does not know.
    """
    config = reader_config(settings)
    if "oauth_cb" in config:
        # A client that gets no token only waits for one.
        config["oauth_cb"]("")
    try:
        Consumer(config).close()
    except KafkaException as error:
        raise ConfigError(
            f"[log.client]: Kafka's client refuses its options: {quoted(error.args[0].str())}",
            hint="the options are librdkafka's; connectors/kafka/README.md lists those of Java's client that pass, too",
        ) from None
    if unused := unused_options(settings.client):
        log.info("client_options_unused", extra={"options": unused})
    reasons = []
    for server in settings.bootstrap_servers.split(","):
        host, separator, port = server.strip().rpartition(":")
        if not separator or not port.isdigit():
            raise ConfigError(
                f"[log] bootstrap_servers: {server.strip()!r} is not host:port", hint='write it as "127.0.0.1:9092"'
            )
        try:
            with closing(socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S)) as line:
                if _encrypted(settings) or not _a_stranger(line):
                    return
                reasons.append(f"{server.strip()}: what answers there does not speak Kafka, or not without TLS")
        except (OSError, OverflowError) as error:
            reasons.append(f"{server.strip()}: {getattr(error, 'strerror', None) or error}")
    raise LogError(
        f"cannot reach Kafka at {'; '.join(reasons)}",
        hint="check [log] bootstrap_servers, and that the brokers run and can be reached from here",
    )


def _encrypted(settings: LogSettings) -> bool:
    return str(settings.client.get("security.protocol", "")).lower() not in _PLAIN


def _a_stranger(line: socket.socket) -> bool:
    """Whether the server's answer is not one to our question. One that closes the connection is a stranger as well."""
    try:
        line.sendall(len(_REQUEST).to_bytes(4, "big") + _REQUEST)
        answer = b""
        while len(answer) < 8:
            part = line.recv(8 - len(answer))
            if not part:
                return True
            answer += part
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return answer[4:] != _CORRELATION


SILENT = (
    KafkaError._TIMED_OUT,
    # The same, of a question that a connection which stands still never sent.
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT,
)
"""No answer came: what was asked for is unknown."""
LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # A leader chosen a moment ago, which cannot say yet where the partition ends.
    KafkaError.OFFSET_NOT_AVAILABLE,
    # The answer when none of the requested partitions has a leader.
    KafkaError._NOENT,
    # A broker that went while it was asked: the client forgets each that the cluster does not name any more. A killed
    # one leaves it at once, and so does one that stood still for nine seconds.
    KafkaError._DESTROY_BROKER,
)
"""This passes within seconds: another answers, or the same one a little later."""
PASSING = (*SILENT, *LEADERLESS)
"""The client goes on by itself after these, and none of them says anything of a topic."""
GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""There is no such topic or partition. The client says the last of a partition without a leader as well."""
_STARTING_S, _STARTING_EVERY_S = 2.0, 0.2


def missing_of(
    topics: Collection[str], names: Callable[[], Collection[str]], clock: Clock = SYSTEM_CLOCK
) -> frozenset[str]:
    """Those of these topics that are not there, once a broker has said so. ``names``: asks for those that there are.

    A broker that starts may know none yet: so its word counts if it names other topics, or none for two seconds on end.
    Empty where no broker answers: then it is not known.
    """
    until_s = clock.monotonic() + _STARTING_S
    while True:
        try:
            named = set(names())
        except LogError:
            return frozenset()
        if named or clock.monotonic() >= until_s:
            return frozenset(topics) - named
        clock.sleep(_STARTING_EVERY_S)
