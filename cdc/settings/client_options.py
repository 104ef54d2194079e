"""Options of ``[log.client]``, with their meaning for each client of Kafka here, Java's among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from cdc.process.errors import ConfigError


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


_SECURITY = ("sasl.", "security.", "ssl.")
"""Beginnings of options without which a connection is another one than was asked for."""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LOGIN_MODULES = {"PLAIN": _PLAIN, "SCRAM-SHA-256": _SCRAM, "SCRAM-SHA-512": _SCRAM}
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
_SERVERS = "bootstrap.servers"
_PROBE = "probe"
"""librdkafka's word for the system's certificates, which Java takes by itself."""
_METHOD, _EXTENSIONS = "sasl.oauthbearer.method", "sasl.oauthbearer.extensions"
_CREDENTIALS = {
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
_LOGIN_NAMES = ("sasl.username", "sasl.password", _METHOD, _EXTENSIONS, *_CREDENTIALS)
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_BEARER = "org.apache.kafka.common.security.oauthbearer"


def java_options(client: Mapping[str, str | int | bool], own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options of a Java client of Kafka. The result holds the secrets that ``client`` holds: never log it.

    ``own``: Java's own options, over those of ``client``. With a ``sasl.mechanism`` they are its whole login.
    ConfigError for an option of a login or of TLS that has no counterpart, rather than a connection less safe than
    asked for. librdkafka's tuning is left out.
    """
    own = own or {}
    other_login = "sasl.mechanism" in own
    text = {n: option_text(value) for n, value in client.items() if not (other_login and n.startswith("sasl."))}
    java: dict[str, str] = {}
    for name, value in text.items():
        known = meaning(name)
        if name == _SERVERS or (known is not None and known.java):
            java[known.java if known is not None and known.java else name] = value
        elif known is None and name.startswith(_SECURITY) and name not in (*_TLS, *_LOGIN_NAMES):
            raise ConfigError(
                f"[log.client] {name} cannot be carried over to a Java client of Kafka",
                hint="Spark and Kafka Connect read Kafka in Java; say it by an option that both kinds of client know",
            )
    if java.get(_IDENTIFICATION) == "none":
        java[_IDENTIFICATION] = ""
    return {**java, **_trust(text), **_login(text, java.get("sasl.mechanism", "")), **own}


def allowed_urls(java: Mapping[str, str]) -> tuple[str, ...]:
    """The options of a JVM whose client asks for tokens: Java asks no address that is not named there."""
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={java[_ENDPOINT]}",) if _ENDPOINT in java else ()


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
    if mechanism.upper() == "OAUTHBEARER":
        return _bearer_login(client)
    if "sasl.username" not in client:
        return {}
    module = _LOGIN_MODULES.get(mechanism.upper())
    if module is None:
        raise ConfigError(
            f"[log.client] sasl.mechanism {mechanism or '(unset)'} with a user name is not known here",
            hint=f"one of {', '.join(sorted(_LOGIN_MODULES))}",
        )
    user, password = _quoted(client["sasl.username"]), _quoted(client.get("sasl.password", ""))
    return {"sasl.jaas.config": f"{module} required username={user} password={password};"}


def _bearer_login(client: Mapping[str, str]) -> dict[str, str]:
    if client.get(_METHOD, "").lower() != "oidc":
        raise ConfigError(
            "OAUTHBEARER by a token of a command does not reach Java's client of Kafka, as Spark and Connect use",
            hint='write "sasl.oauthbearer.method" = "oidc" and its options, or a login of Java\'s own in [spark.kafka]',
        )
    words = {java: client[name] for name, java in _CREDENTIALS.items() if name in client}
    for pair in filter(None, client.get(_EXTENSIONS, "").split(",")):
        name, _, value = pair.partition("=")
        words[f"extension_{name.strip()}"] = value.strip()
    said = "".join(f" {name}={_quoted(value)}" for name, value in words.items())
    return {
        "sasl.login.callback.handler.class": f"{_BEARER}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required{said};",
    }


def _quoted(value: str) -> str:
    """A string of a JAAS line."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
