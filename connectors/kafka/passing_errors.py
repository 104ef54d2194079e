"""The client's errors by how they end: nobody answered, nobody leads for a moment, or there is no such topic."""

from __future__ import annotations

from collections.abc import Callable, Collection

from confluent_kafka import KafkaError

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import LogError

SILENT = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT,
)
"""No answer came: what was asked for is unknown."""
LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # A leader chosen a moment ago, which cannot say yet where the partition ends.
    KafkaError.OFFSET_NOT_AVAILABLE,
    # The answer when none of the requested partitions has a leader.
    KafkaError._NOENT,
    # A broker that went while it was asked: the client forgets each that the cluster does not name any more. A killed
    # one leaves it at once, and so does one that stood still for nine seconds.
    KafkaError._DESTROY_BROKER,
)
"""This passes within seconds: another answers, or the same one a little later."""
PASSING = (*SILENT, *LEADERLESS)
"""The client goes on by itself after these, and none of them says anything of a topic."""
GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""There is no such topic or partition. The client says the last of a partition without a leader as well."""
_STARTING_S, _EVERY_S = 2.0, 0.2


def missing_of(
    topics: Collection[str], names: Callable[[], Collection[str]], clock: Clock = SYSTEM_CLOCK
) -> frozenset[str]:
    """Those of these topics that are not there, once a broker has said so. ``names``: asks for those that there are.

    A broker that starts may know none yet: so its word counts if it names other topics, or none for two seconds on end.
    Empty where no broker answers: then it is not known.
    """
    until_s = clock.monotonic() + _STARTING_S
    while True:
        try:
            named = set(names())
        except LogError:
            return frozenset()
        if named or clock.monotonic() >= until_s:
            return frozenset(topics) - named
        clock.sleep(_EVERY_S)
