"""The state of a whole pipeline, or of the one shard that the settings are of."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.epochs import epoch_of
from cdc.errors import TopicError
from cdc.progress import Progress, ShardMark
from cdc.settings import Settings
from cdc.shard_documents import merged, tables_of
from cdc.shard_plan import each_shard, progress_topic_of, shards_of, state_topic_of
from cdc.shard_progress import least
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.feed import ProgressTopic, ShardedProgress
from connectors.newest_progress import newest_progress


def read_state(settings: Settings) -> Mapping[bytes, bytes]:
    """The documents that the settings speak of: those of all shards as one pipeline's, see
    :mod:`cdc.shard_documents`.

    LogError when no broker answers, TopicError before ``cdc init``.
    """
    return state_of(settings).read()


class WholeState(KafkaCompactedTopic):
    """The documents of all shards as those of one pipeline, to be read alone."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.log, state_topic_of(settings))
        self._whole = settings

    def read(self) -> dict[bytes, bytes]:
        return merged(read_each(self._whole))


def state_of(settings: Settings) -> KafkaCompactedTopic:
    """The state topic of the pipeline, or of the settings' shard. Of a pipeline with shards that of all of them, see
    :class:`WholeState`."""
    if settings.shard or not settings.capture.shards:
        return KafkaCompactedTopic(settings.log, state_topic_of(settings))
    return WholeState(settings)


def epochs_of_tables(settings: Settings) -> dict[str, int]:
    """Table -> the epoch of the shard that writes it. Empty for a pipeline without shards. Raises as
    :func:`read_state`."""
    if not settings.capture.shards:
        return {}
    return {
        table: epoch_of(documents, settings.source.kind) or 0
        for documents in read_each(settings).values()
        for table in tables_of(documents)
    }


def progress_feed(settings: Settings) -> ProgressTopic | ShardedProgress:
    """The progress topic, or those of all shards, followed."""
    if not settings.capture.shards:
        return ProgressTopic(settings.log, progress_topic_of(settings))
    return ShardedProgress(settings.log, {progress_topic_of(one): one.shard for one in each_shard(settings)})


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
