"""What a test looks at again and again while it waits, with one client for all looks: to make one is most of a look."""

from __future__ import annotations

from confluent_kafka import Consumer

from cdc.process.errors import DamagedError
from cdc.record.progress import PROGRESS_KEY, Progress
from cdc.record.topic_names import progress_topic
from cdc.settings.model import Settings
from connectors.kafka.clients import reader_config
from connectors.kafka.compacted_topic import read_on


class ProgressLook:
    """The newest progress record of a pipeline, by what it says."""

    def __init__(self, settings: Settings) -> None:
        self.log = settings.log
        self._topic = progress_topic(settings.name)
        self._consumer = Consumer(reader_config(settings.log))
        self._at: int | None = None
        self._newest: Progress | None = None

    def newest(self) -> Progress | None:
        """Of all that the topic holds now; None while it holds none."""
        for message in read_on(self._consumer, self.log, self._topic, 0, self._at):
            value = message.value()
            self._at = (message.offset() or 0) + 1
            if message.key() == PROGRESS_KEY and isinstance(value, bytes):
                try:
                    found = Progress.from_json(value)
                except DamagedError:
                    continue  # a test wrote it
                if self._newest is None or (found.epoch, found.lsn) >= (self._newest.epoch, self._newest.lsn):
                    self._newest = found
        return self._newest
