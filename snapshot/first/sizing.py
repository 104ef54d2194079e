"""How large the first snapshot's chunks are: pure."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_BYTES = 4 * 1024**2
_ROUNDS = 8
"""Chunks per worker at least, so that all end at about the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The figures that decide how large a chunk is. ``most_bytes``: ``[snapshot] chunk_bytes``."""

    workers: int
    most_bytes: int
    server_version: int

    def chunk_bytes(self, total_bytes: int) -> int:
        """``most_bytes``, or less where few chunks would leave workers idle at the end."""
        return max(min(self.most_bytes, total_bytes // (self.workers * _ROUNDS)), min(self.most_bytes, _LEAST_BYTES))
