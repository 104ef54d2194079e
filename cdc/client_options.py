"""Options of ``[log.client]``, with their meaning for each client of Kafka here.

Providers print samples of options, some by librdkafka's names and some by Java's. Capture and the commands speak
librdkafka, Spark and Kafka Connect speak Java. One table serves all of them, so that a sample can be pasted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Option(NamedTuple):
    """``librdkafka`` and ``java``: the name there, empty where the option is not passed. ``agreed``: the only values
    of one that Headrace sets itself. ``cure``: why any other value is refused, and what to write instead."""

    librdkafka: str = ""
    java: str = ""
    agreed: tuple[str, ...] = ()
    cure: str = ""


_SAME = (
    "client.dns.lookup", "client.id", "client.rack", "connections.max.idle.ms", "fetch.max.bytes",
    "max.partition.fetch.bytes", "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.service.name", "sasl.mechanism",
    "sasl.oauthbearer.token.endpoint.url", "security.protocol",
    "socket.connection.setup.timeout.ms", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
_RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "socket.timeout.ms": "request.timeout.ms",
}
"""librdkafka's name and Java's. Either may be written."""
TOKEN = "sasl.oauthbearer.token"
"""Our name, in ``[log.client_secrets]``: a token by reference. librdkafka has none for it."""
_OURS = "Headrace's promises rest on it; leave it out"
_LOGIN = 'write "sasl.mechanism" and "sasl.username" here, and "sasl.password" in [log.client_secrets]'
_TRUST = 'write "ssl.ca.location" with a PEM file'
_CERTIFICATE = 'write "ssl.certificate.location" and "ssl.key.location" with PEM files'
OPTIONS: Mapping[str, Option] = {
    **{name: Option(name, name) for name in _SAME},
    **{name: Option(name, java) for name, java in _RENAMED.items()},
    **{java: Option(name, java) for name, java in _RENAMED.items() if java not in _SAME},
    # Of producers, so Spark's reader has no use for it.
    "linger.ms": Option("linger.ms"),
    # Set by Headrace. A sample may say the same.
    **dict.fromkeys(("acks", "request.required.acks"), Option(agreed=("all", "-1"), cure=_OURS)),
    "enable.idempotence": Option(agreed=("true",), cure=_OURS),
    "isolation.level": Option(agreed=("read_committed",), cure=_OURS),
    "transactional.id": Option(cure=_OURS),
    # Settings of [log], or said in other words.
    "bootstrap.servers": Option(cure="the servers stand in [log] bootstrap_servers"),
    "metadata.broker.list": Option(cure="the servers stand in [log] bootstrap_servers"),
    **dict.fromkeys(
        ("compression.type", "compression.codec"), Option(cure="the compression stands in [log] compression")
    ),
    **dict.fromkeys(
        ("message.max.bytes", "max.request.size"), Option(cure="the size stands in [log] max_message_bytes")
    ),
    **dict.fromkeys(("sasl.jaas.config", "sasl.client.callback.handler.class"), Option(cure=_LOGIN)),
    TOKEN: Option(cure="a token stands in [log.client_secrets], by reference"),
    "sasl.login.callback.handler.class": Option(cure='write "sasl.oauthbearer.method" = "oidc" and its options'),
    **{f"ssl.truststore.{each}": Option(cure=_TRUST) for each in ("location", "password", "type")},
    **{f"ssl.keystore.{each}": Option(cure=_CERTIFICATE) for each in ("location", "password", "type")},
    # Of consumers in groups that commit, of producers that give up, of serializers. There are none here.
    **dict.fromkeys(
        (
            "auto.commit.interval.ms", "auto.offset.reset", "batch.size", "buffer.memory", "default.api.timeout.ms",
            "delivery.timeout.ms", "enable.auto.commit", "enable.auto.offset.store", "group.id", "group.instance.id",
            "group.protocol", "heartbeat.interval.ms", "max.block.ms", "max.in.flight",
            "max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records",
            "message.send.max.retries", "message.timeout.ms", "partition.assignment.strategy", "partitioner",
            "partitioner.class", "retries", "session.timeout.ms", "transaction.timeout.ms", "use.latest.version",
            "auto.register.schemas",
        ),
        Option(),
    ),
}  # fmt: skip
_UNUSED = ("basic.auth.", "interceptor.", "key.", "metric.", "schema.registry.", "value.")
"""Beginnings of options of serializers, registries and Java's own reports, which have no meaning here."""
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
_IAM = 'write "OAUTHBEARER" and a token by command, and this one in [spark.kafka]; see connectors/kafka/README.md'

Value = str | int | bool


def meaning(name: str) -> Option | None:
    """The meaning of an option. None for one that the table does not know: librdkafka's own, or nobody's."""
    return OPTIONS.get(name) or (Option() if name.startswith(_UNUSED) else None)


def option_text(value: Value) -> str:
    """A value as Kafka's clients write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def require_allowed(client: Mapping[str, Value]) -> None:
    """ValueError for the first option that would break a promise, or that is said elsewhere in the settings.

    >>> require_allowed({"acks": "1"})
    Traceback (most recent call last):
    ValueError: "acks" is always "all": Headrace's promises rest on it; leave it out
    """
    for name, value in client.items():
        known = meaning(name)
        if known is not None and known.cure and option_text(value) not in known.agreed:
            always = f'is always "{known.agreed[0]}"' if known.agreed else "cannot be set here"
            raise ValueError(f'"{name}" {always}: {known.cure}')
        if name in _MECHANISMS and option_text(value).upper() == "AWS_MSK_IAM":
            raise ValueError(f'"{name}" is a mechanism of Java\'s client alone: {_IAM}')


def unused_options(names: Iterable[str]) -> list[str]:
    """Those that no client here gets, in order: they have no meaning for what Headrace does with Kafka.

    >>> unused_options(["session.timeout.ms", "acks", "linger.ms", "value.serializer", "debug"])
    ['session.timeout.ms', 'value.serializer']
    """
    return [name for name in names if (known := meaning(name)) is not None and known == Option()]


def librdkafka_options(client: Mapping[str, Value]) -> dict[str, Value]:
    """The options of a librdkafka client, by its names. One that the table does not know goes as it is.

    >>> librdkafka_options({"receive.buffer.bytes": 65536, "retries": 3, "debug": "broker"})
    {'socket.receive.buffer.bytes': 65536, 'debug': 'broker'}
    """
    named = {(name if (known := meaning(name)) is None else known.librdkafka): client[name] for name in client}
    return {name: value for name, value in named.items() if name}
