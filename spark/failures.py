"""What Spark says when a query ends by itself, as an error of ours: pure."""

from __future__ import annotations

import re

from cdc.errors import CdcError, Exit, LogError, Retry, TopicError

_LOST = ("some data may have been missed", "OffsetOutOfRange", "KafkaDataConsumer.DATA_LOSS", "KAFKA_DATA_LOSS",
         "offset was changed from")  # fmt: skip
# A broker that restarts does not know its partitions for a while. The next start asks for the topics: a TopicError
# says then which one is really gone.
_AWAY = ("TimeoutException", "DisconnectException", "NetworkException", "BrokerNotAvailable", "NotLeader",
         "CoordinatorNotAvailable", "Timeout of", "KafkaException", "node assignment",
         "UnknownTopicOrPartition")  # fmt: skip
_REFUSED = ("SaslAuthenticationException", "SslAuthenticationException", "AuthorizationException")
_NAMED = re.compile(r"(?:[a-z_]\w*\.)+([A-Z]\w*(?:Exception|Error)): ([^\n]+)")
_LONGEST = 300


class QueryFailed(CdcError):
    """A query ended for a reason of Spark's; tried again a few times."""

    exit = Exit.BUG
    retry = Retry.NOW


def read_failure(query: str, text: str, log: str) -> CdcError:
    """The error for a query's exception text. TopicError where records are gone, LogError where Kafka is away."""
    said = _cause(text)
    if any(word in text for word in _LOST):
        return TopicError(
            f"the query {query} misses records in its topics: {said}",
            hint="a topic was deleted, made anew or cut; cdc check says which",
        )
    if any(word in text for word in _REFUSED):
        return LogError(
            f"Kafka refused the query {query}: {said}", hint="check [log.client] and its secrets", retry=Retry.NEVER
        )
    if any(word in text for word in _AWAY):
        return LogError(f"Kafka does not answer the query {query}: {said}", hint="check that the brokers run")
    return QueryFailed(f"the query {query} failed: {said}", hint=f"Spark's own words are in {log}")


def _cause(text: str) -> str:
    """The innermost exception's message, on one line."""
    found = _NAMED.findall(text)
    said = f"{found[-1][0]}: {found[-1][1]}" if found else text.strip().split("\n", 1)[0]
    return said.strip()[:_LONGEST] or "without a word"
