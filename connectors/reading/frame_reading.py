"""A reader of the log whose secrets are read where it is opened. Executors import this module: it knows no settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import quoted
from connectors.kafka.client_secrets import with_secrets
from connectors.kafka.record_reader import KafkaRecords


@dataclass(frozen=True)
class ReferencedReading:
    """How to open a reader, as plain data without a secret. Implements :class:`cdc.wire.records.ReaderOpener`.

    ``config``: of :func:`connectors.kafka.clients.fetching_config`, less the secrets. ``references``: librdkafka's
    names, each with ``env:NAME``, ``file:PATH`` or ``command:PROGRAM``.
    """

    config: tuple[tuple[str, Any], ...]
    references: tuple[tuple[str, str], ...]

    def open(self) -> KafkaRecords:
        config = with_secrets(dict(self.config), dict(self.references))
        try:
            return KafkaRecords(config)
        except KafkaException as error:
            raise refused(error) from None


def refused(error: KafkaException) -> ConfigError:
    """The error for options that librdkafka refuses."""
    return ConfigError(
        f"Kafka's client refuses its options: {quoted(error.args[0].str())}",
        hint="options that begin with kafka. are librdkafka's, not those of Java's client",
    )
