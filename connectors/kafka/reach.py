"""Whether a broker answers at all: found out in milliseconds where a client would try for a quarter of a minute."""

from __future__ import annotations

import socket
from contextlib import closing

from cdc.errors import ConfigError, LogError
from cdc.settings import LogSettings

TIMEOUT_S = 5.0


def require_broker(settings: LogSettings) -> None:
    """Return when one of the bootstrap servers takes a connection; LogError names them otherwise."""
    reasons = []
    for server in settings.bootstrap_servers.split(","):
        host, separator, port = server.strip().rpartition(":")
        if not separator or not port.isdigit():
            raise ConfigError(
                f"[log] bootstrap_servers: {server.strip()!r} is not host:port", hint='write it as "127.0.0.1:9092"'
            )
        try:
            with closing(socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S)):
                return
        except OSError as error:
            reasons.append(f"{server.strip()}: {error.strerror or error}")
    raise LogError(
        f"cannot reach Kafka at {'; '.join(reasons)}",
        hint="check [log] bootstrap_servers, and that the brokers run and can be reached from here",
    )
