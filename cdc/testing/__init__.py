"""Memory doubles of the ports, for tests of what stands on them. Yours too.

They keep the promises of the real parts: one contract suite runs over both.
"""

from __future__ import annotations

from cdc.process.clock import ManualClock
from cdc.testing.log import (
    MemoryBroker,
    MemoryCompactedTopic,
    MemoryDeadLetters,
    MemoryLetterFeed,
    MemoryReading,
    MemoryRecords,
    MemoryStream,
    MemoryStreamLog,
    MemoryTopics,
    StoredRecord,
)

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
