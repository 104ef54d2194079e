"""Whether a broker answers at all: found out in milliseconds where a client would try for half a minute."""

from __future__ import annotations

import logging
import socket
from contextlib import closing

from confluent_kafka import Consumer, KafkaException

from cdc.client_options import unused_options
from cdc.errors import ConfigError, LogError
from cdc.foreign import quoted
from cdc.settings import LogSettings
from connectors.kafka.clients import reader_config

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
