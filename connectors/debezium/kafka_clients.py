"""The connector's own clients of Kafka: one reads signals, two keep the schema history.

Neither takes the worker's security settings. They get those of ``[log.client]``, in Java's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.client_options import TOKEN
from cdc.errors import ConfigError
from cdc.javaclient import java_options
from cdc.settings import DebeziumSettings, LogSettings
from connectors.debezium.hidden_options import is_reference

SIGNALS = "signal.consumer."
HISTORY = "schema.history.internal."
_HISTORY_CLIENTS = ("schema.history.internal.producer.", "schema.history.internal.consumer.")
_CARRIED = ("security.", "sasl.", "ssl.", "client.dns.lookup")
_SECRETS = ("sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem", "ssl.key.password")
_KEY_FILE, _KEY = "ssl.key.location", "ssl.key.pem"


def client_options(log: LogSettings, debezium: DebeziumSettings, config: Mapping[str, str]) -> dict[str, str]:
    """TLS and login of the clients that ``config`` makes use of, for Kafka Connect to resolve.

    A client whose ``security.protocol`` stands in ``[debezium.options]`` gets nothing. Raises ConfigError for a
    secret without a reference, and for an option that Java has no word for.
    """
    clients = [prefix for prefix in _clients(config) if f"{prefix}security.protocol" not in debezium.options]
    if not clients:
        return {}
    options = java_options(_client(log, debezium.kafka_secrets))
    return {f"{prefix}{name}": value for prefix in clients for name, value in options.items()}


def _clients(config: Mapping[str, str]) -> Iterable[str]:
    if "kafka" in config.get("signal.enabled.channels", ""):
        yield SIGNALS
    if any(option.startswith(HISTORY) for option in config):
        yield from _HISTORY_CLIENTS


def _client(log: LogSettings, references: Mapping[str, str]) -> dict[str, str | int | bool]:
    """``[log.client]`` with references in the place of secrets."""
    client = {name: value for name, value in log.client.items() if name.startswith(_CARRIED)}
    if _KEY_FILE in client:
        del client[_KEY_FILE]
        _require(references, _KEY)
    for name in [*(name for name in client if name in _SECRETS), *log.client_secrets]:
        # A token goes to no Java client, which says so itself.
        if name.startswith(_CARRIED) and name != TOKEN:
            _require(references, name)
    for name, value in references.items():
        if not is_reference(value) or '"' in value or "\\" in value:
            raise ConfigError(
                f"[debezium.kafka_secrets] {name} is not a reference that Kafka Connect resolves",
                hint=f'write it as "{name}" = "${{file:/secrets/kafka.properties:key}}" or "${{env:NAME}}"',
            )
    return client | dict(references)


def _require(references: Mapping[str, str], name: str) -> None:
    if name not in references:
        raise ConfigError(
            f"the connector needs {name} for its own clients of Kafka, and the one in [log] is read by cdc alone",
            hint="write it as Kafka Connect finds it: "
            f'[debezium.kafka_secrets] "{name}" = "${{file:/secrets/kafka.properties:key}}"',
        )
