"""``[log.client]`` in Java's words: the settings speak librdkafka's, Spark and Kafka Connect speak Java's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cdc.client_options import meaning, option_text
from cdc.errors import ConfigError

_SECURITY = ("sasl.", "security.", "ssl.")
"""Beginnings of options without which a connection is another one than was asked for."""
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
    module = _LOGIN.get(mechanism.upper())
    if module is None:
        raise ConfigError(
            f"[log.client] sasl.mechanism {mechanism or '(unset)'} with a user name is not known here",
            hint=f"one of {', '.join(sorted(_LOGIN))}",
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
