"""The state of a whole pipeline, or of the one shard that the settings are of."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.errors import TopicError
from cdc.progress import Progress, ShardMark
from cdc.settings import Settings
from cdc.shard_documents import merged
from cdc.shard_plan import each_shard, shards_of, state_topic_of
from cdc.shard_progress import least
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.newest_progress import newest_progress


def read_state(settings: Settings) -> Mapping[bytes, bytes]:
    """The documents that the settings speak of: those of all shards as one pipeline's, see
    :mod:`cdc.shard_documents`.

    LogError when no broker answers, TopicError before ``cdc init``.
    """
    if settings.shard or not settings.capture.shards:
        return KafkaCompactedTopic(settings.log, state_topic_of(settings)).read()
    return merged(read_each(settings))


def read_each(settings: Settings) -> dict[str, Mapping[bytes, bytes]]:
    """By shard, its documents. Those of a pipeline without shards under "". Raises as :func:`read_state`."""
    return {one.shard: KafkaCompactedTopic(one.log, state_topic_of(one)).read() for one in each_shard(settings)}


def read_known_each(settings: Settings) -> dict[str, Mapping[bytes, bytes]]:
    """The same, empty for a shard that has no topics yet, and with the capture without shards that may have been
    there before. LogError when no broker answers."""
    found: dict[str, Mapping[bytes, bytes]] = {}
    for one in map(settings.named_shard, ("", *shards_of(settings))):
        try:
            found[one.shard] = KafkaCompactedTopic(one.log, state_topic_of(one)).read()
        except TopicError:
            found[one.shard] = {}
    return found


def newest_of_all(settings: Settings) -> ShardMark | None:
    """How far the log holds the source, over all shards the least. None before the first record of one of them.

    LogError when no broker answers, DamagedError when no record can be read.
    """
    known = [newest_progress(one) for one in each_shard(settings)]
    marks = [_mark(one) for one in known if one is not None]
    return least(marks) if len(marks) == len(known) else None


def _mark(progress: Progress) -> ShardMark:
    return ShardMark(epoch=progress.epoch, lsn=progress.lsn, lineage=progress.lineage)
