"""A small compacted topic in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class MemoryCompactedTopic:
    """:class:`cdc.ports.CompactedTopic` in memory. ``writes`` counts the calls that appended something."""

    def __init__(self, records: Mapping[bytes, bytes] | None = None) -> None:
        self._newest = dict(records or {})
        self.writes = 0

    def read(self) -> dict[bytes, bytes]:
        return dict(self._newest)

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        appended = list(records)
        self.writes += bool(appended)
        for key, value in appended:
            self._newest.pop(key, None)
            if value is not None:
                self._newest[key] = value
