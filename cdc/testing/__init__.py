"""Memory doubles of the ports, for tests of what stands on them. Yours too.

They keep the promises of the real parts: one contract suite runs over both.
"""

from __future__ import annotations

from cdc.clock import ManualClock
from cdc.testing.letters import MemoryDeadLetters, MemoryLetterFeed
from cdc.testing.log import MemoryBroker, MemoryStreamLog, MemoryTopics, StoredRecord
from cdc.testing.record_reader import MemoryReading, MemoryRecords
from cdc.testing.stream import MemoryStream
from cdc.testing.topic import MemoryCompactedTopic

__all__ = [
    "ManualClock",
    "MemoryBroker",
    "MemoryCompactedTopic",
    "MemoryDeadLetters",
    "MemoryLetterFeed",
    "MemoryReading",
    "MemoryRecords",
    "MemoryStream",
    "MemoryStreamLog",
    "MemoryTopics",
    "StoredRecord",
]
