"""The state of a whole pipeline, or of the one shard that the settings are of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from cdc.epochs import epoch_of
from cdc.errors import DamagedError, TopicError
from cdc.found import Unknown, look
from cdc.settings import Settings
from cdc.shard_documents import Documents, merged, noted_shards, require_named, shards_of_tables
from cdc.shard_plan import each_shard, progress_topic_of, shards_of, state_topic_of
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
    each = read_each(settings)
    owners = shards_of_tables(each)
    return {table: epoch_of(each[shard], settings.source.kind) or 0 for table, shard in owners.items()}


def progress_feed(settings: Settings) -> ProgressTopic | ShardedProgress:
    """The progress topic, or those of all shards, followed."""
    if not settings.capture.shards:
        return ProgressTopic(settings.log, progress_topic_of(settings))
    return ShardedProgress(settings.log, {progress_topic_of(one): one.shard for one in each_shard(settings)})


def read_each(settings: Settings) -> dict[str, Mapping[bytes, bytes]]:
    """By shard, its documents. Those of a pipeline without shards under "".

    Raises as :func:`read_state`, and ConfigError where a shard was made that the settings do not name.
    """
    known: dict[str, Mapping[bytes, bytes]] = {}
    if settings.capture.shards and not settings.shard:
        # The documents of the pipeline itself say which shards there are.
        known = read_known_each(settings)
        require_named(settings.name, known, shards_of(settings))
    return {
        one.shard: known.get(one.shard) or KafkaCompactedTopic(one.log, state_topic_of(one)).read()
        for one in each_shard(settings)
    }


def read_own(settings: Settings) -> Documents:
    """The documents of the pipeline itself, or of the settings' shard alone. Raises as :func:`read_state`."""
    return KafkaCompactedTopic(settings.log, state_topic_of(settings)).read()


def read_known_each(
    settings: Settings, read: Callable[[Settings], Documents] = read_own
) -> dict[str, Mapping[bytes, bytes]]:
    """The same of all shards that the settings or the pipeline's notes name, with the documents of the pipeline itself
    under "". Empty for one that has no topics yet. LogError when no broker answers."""
    found = {"": _known(settings.named_shard(""), read)}
    for shard in dict.fromkeys((*shards_of(settings), *noted_shards(found[""]))):
        found[shard] = _known(settings.named_shard(shard), read)
    return found


def _known(settings: Settings, read: Callable[[Settings], Documents]) -> Documents:
    try:
        return read(settings)
    except TopicError:
        return {}


class ShardStates:
    """The documents of all shards, as :func:`read_known_each` has them, for one look that is at several: each state
    topic is read once, also where that fails. For several threads."""

    def __init__(self, settings: Settings, read: Callable[[Settings], Documents] = read_own) -> None:
        self._settings = settings
        self._read = read
        self._lock = threading.Lock()
        self._found: Mapping[str, Documents] | Unknown | None = None

    def each(self) -> Mapping[str, Documents]:
        """By shard. LogError when no broker answers."""
        with self._lock:
            if self._found is None:
                self._found = look(lambda: read_known_each(self._settings, self._read))
            found = self._found
        if isinstance(found, Unknown):
            raise found.because
        return found

    def own(self, settings: Settings) -> Documents:
        """Those of the settings' shard, or of the pipeline. Raises as :func:`read_state`."""
        # Why one has no documents is not known.
        return (self.each().get(settings.shard) if settings.shard else None) or self._read(settings)


def newest_written(settings: Settings) -> dict[str, tuple[int, int]]:
    """The same, and under "" that of a pipeline without shards. Raises as :func:`newest_progress`, and as
    :func:`newest_of_shards`."""
    if settings.capture.shards:
        return newest_of_shards(settings)
    newest = newest_progress(settings)
    return {"": (newest.epoch, newest.lsn)} if newest is not None else {}


def newest_of_shards(settings: Settings) -> dict[str, tuple[int, int]]:
    """By shard, the epoch and the LSN up to which the log holds its tables. One that has written nothing yet, or whose
    records cannot be read, is left out. LogError when no broker answers."""
    found: dict[str, tuple[int, int]] = {}
    for one in each_shard(settings) if settings.capture.shards else ():
        with suppress(DamagedError, TopicError):
            newest = newest_progress(one)
            found |= {one.shard: (newest.epoch, newest.lsn)} if newest is not None else {}
    return found
