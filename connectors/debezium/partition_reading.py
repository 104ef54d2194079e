"""Readers of a connector's partitions, as its settings want them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cdc.settings import Settings
from cdc.wire.debezium.reading import PartitionReader


def reader_of_partitions(settings: Settings) -> Callable[..., PartitionReader]:
    """Makes a reader of a partition by its topic and number, which tells tombstones whose deletes the cleaner took."""
    documents = settings.debezium is not None and settings.debezium.database == "mongodb"
    return partial(PartitionReader, lone=True, documents=documents)
