"""Client configuration: the options of every Kafka client here, unless the settings override them, and its secrets,
which are read where it is opened.
"""

from __future__ import annotations

import json
import logging
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit, LogError, Retry
from cdc.process.untrusted_text import quoted
from cdc.settings.client_options import TOKEN, librdkafka_options
from cdc.settings.model import LogSettings
from cdc.settings.secret_reference import reveal

_LIFETIME_S = 300.0
"""Of a token that does not say when it ends. The client asks for the next one after four fifths of it."""


@dataclass(frozen=True)
class OAuthToken:
    """A token of OAUTHBEARER by reference, as librdkafka asks for one: again and again, each before the last one ends.

    As plain data it travels to executors.
    """

    reference: str

    def __call__(self, _config: str = "") -> tuple[str, float]:
        """The token, and when it ends, in seconds since 1970. ConfigError where it cannot be had."""
        token = reveal(self.reference)
        return token, _ends_s(token) or SYSTEM_CLOCK.now_ns() / 1e9 + _LIFETIME_S


def with_secrets(config: Mapping[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """A client's options with their secrets, never to be logged. ``references``: by librdkafka's names, and
    :data:`cdc.settings.client_options.TOKEN`. ConfigError where one cannot be read."""
    revealed: dict[str, Any] = {name: reveal(one) for name, one in references.items() if name != TOKEN}
    if TOKEN in references:
        revealed["oauth_cb"] = OAuthToken(references[TOKEN])
    return {**config, **revealed}


def _ends_s(token: str) -> float | None:
    """When a JSON Web Token ends. None for a token of another kind, as that of MSK's IAM."""
    claims = token.split(".")[1:2]
    try:
        padded = claims[0] + "=" * (-len(claims[0]) % 4)
        return float(json.loads(urlsafe_b64decode(padded))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


log = logging.getLogger(__name__)
# Not logged, because we chose or caused them: an option called experimental, records dropped at a close. Nor is a
# broker that has just started and gives a producer its id at the second request.
_NO_NEWS = ("CONFWARN", "Purged in flight", "Purged in queue", "Coordinator load in progress")
_QUEUE_BYTES = 16 * 1024**2
_LARGEST_RESPONSE = 2_147_483_647
READER_GROUP = "cdc-reader"
"""Of consumers that are assigned and never commit. Kafka asks for the right to it all the same."""
log.addFilter(lambda record: not any(words in record.getMessage() for words in _NO_NEWS))


def client_config(settings: LogSettings, **more: Any) -> dict[str, Any]:
    """librdkafka properties: servers, the user's ``[log.client]``, revealed secrets, then ``more``.

    The result holds secrets: never log it.
    """
    options = {"bootstrap.servers": settings.bootstrap_servers, **librdkafka_options(settings.client)}
    config = with_secrets(options, {name: secret.reference for name, secret in settings.client_secrets.items()})
    config.update(more)
    config.setdefault("logger", log)
    config.setdefault("error_cb", partial(raise_refused, settings.bootstrap_servers))
    return config


def raise_refused(servers: str, error: KafkaError) -> None:
    """LogError in the poll of a client whose login the brokers refuse: it would go on with the same secret for ever.

    A connection that breaks within the login is none: librdkafka gives it the same code, and tries again.
    """
    if error.code() == KafkaError._AUTHENTICATION and "transport failure" not in error.str():
        raise LogError(
            f"Kafka at {servers} refuses the login: {quoted(error.str())}",
            hint="check sasl.* in [log] client and client_secrets",
            retry=Retry.SECRET,
            exit=Exit.CONFIG,
        )


def producer_config(settings: LogSettings) -> dict[str, Any]:
    """An idempotent producer that waits for all replicas and never gives a record up by itself."""
    return client_config(
        settings,
        **{
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "compression.type": settings.compression,
            "message.timeout.ms": 0,
            "message.max.bytes": settings.max_message_bytes + 64 * 1024,
            "linger.ms": settings.client.get("linger.ms", 2),
            # A batch of several records must never be what the topic refuses for its size.
            "batch.size": min(1_000_000, settings.max_message_bytes - 4096),
            "queue.buffering.max.messages": 500_000,
        },
    )


def reader_config(settings: LogSettings) -> dict[str, Any]:
    """A consumer without a group: assigned, never committing, notified of partitions' ends."""
    return client_config(
        settings,
        **{
            "group.id": READER_GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            # A response holds one record at least, however large it is.
            "receive.message.max.bytes": min(_LARGEST_RESPONSE, 100_000_000 + settings.max_message_bytes),
        },
    )


def fetching_config(settings: LogSettings) -> dict[str, Any]:
    """A reader that fetches ahead, for :class:`connectors.kafka.record_reader.KafkaReading`. Nothing in it is an
    object."""
    config = reader_config(settings) | {
        "group.id": "cdc-sink",
        # The broker answers as soon as it has something.
        "fetch.wait.max.ms": 100,
        # Records fetched ahead: more than a small batch, and for a large one bounded in bytes.
        "queued.min.messages": 200_000,
        "queued.max.messages.kbytes": _QUEUE_BYTES // 1024,
        "fetch.max.bytes": _QUEUE_BYTES,
        "fetch.queue.backoff.ms": 5,
    }
    del config["logger"], config["error_cb"]
    # Without a logger the client itself writes to stderr, twenty lines a second while a broker is away. A failure
    # that it cannot retry comes as an error, and the watch logs an absent broker once.
    config.setdefault("log_level", 2)
    return config
