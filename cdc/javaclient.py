"""``[log.client]`` in Java's words: the settings speak librdkafka's, Spark and Kafka Connect speak Java's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cdc.errors import ConfigError

_SAME = frozenset(
    {
        "bootstrap.servers",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "sasl.kerberos.service.name",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "ssl.endpoint.identification.algorithm",
    }
)
_OTHER_NAME = {
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "fetch.max.bytes": "fetch.max.bytes",
    "socket.timeout.ms": "request.timeout.ms",
}
_LIBRDKAFKA_ONLY = ("socket.", "debug", "log.", "queue", "statistics.", "topic.metadata.", "broker.", "enable.ssl")
"""Tuning of the other client, without a meaning for this one."""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LOGIN = {"PLAIN": _PLAIN, "SCRAM-SHA-256": _SCRAM, "SCRAM-SHA-512": _SCRAM}
_TLS = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
)
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
_PROBE = "probe"
"""librdkafka's word for the system's certificates, which Java takes by itself."""
_LOGIN_NAMES = ("sasl.username", "sasl.password")


def java_options(client: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Options of a Java client of Kafka. The result holds the secrets that ``client`` holds: never log it.

    ConfigError for an option that has no counterpart, rather than a connection less safe than asked for.
    """
    text = {name: _text(value) for name, value in client.items()}
    java: dict[str, str] = {}
    for name, value in text.items():
        if name in _SAME:
            java[name] = value
        elif name in _OTHER_NAME:
            java[_OTHER_NAME[name]] = value
        elif name not in _TLS and name not in _LOGIN_NAMES and not name.startswith(_LIBRDKAFKA_ONLY):
            raise ConfigError(
                f"[log.client] {name} cannot be carried over to a Java client of Kafka",
                hint="Spark and Kafka Connect read Kafka in Java; say it by an option that both kinds of client know",
            )
    if java.get(_IDENTIFICATION) == "none":
        java[_IDENTIFICATION] = ""
    return java | _trust(text) | _login(text, java.get("sasl.mechanism", ""))


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _trust(client: Mapping[str, str]) -> dict[str, str]:
    """Java reads PEM since Kafka 2.7. Inline, so that no file has to exist on the executors."""
    found: dict[str, str] = {}
    authority = _pem(client, "ssl.ca")
    if authority is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
    certificate, key = _pem(client, "ssl.certificate"), _pem(client, "ssl.key")
    if certificate is not None and key is not None:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
        if "ssl.key.password" in client:
            found["ssl.key.password"] = client["ssl.key.password"]
    return found


def _pem(client: Mapping[str, str], name: str) -> str | None:
    if f"{name}.pem" in client:
        return client[f"{name}.pem"]
    path = client.get(f"{name}.location")
    if path is None or path == _PROBE:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"[log.client] {name}.location: {path} cannot be read: {error.strerror}") from None


def _login(client: Mapping[str, str], mechanism: str) -> dict[str, str]:
    if "sasl.username" not in client:
        return {}
    module = _LOGIN.get(mechanism.upper())
    if module is None:
        raise ConfigError(
            f"[log.client] sasl.mechanism {mechanism or '(unset)'} with a user name is not known here",
            hint=f"one of {', '.join(sorted(_LOGIN))}",
        )
    user, password = _quoted(client["sasl.username"]), _quoted(client.get("sasl.password", ""))
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _quoted(value: str) -> str:
    """A string of a JAAS line."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
