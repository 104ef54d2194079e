"""Blocks of bytes that wait: the oldest in memory, the newer ones on disk once memory is full."""

from __future__ import annotations

from collections import deque

from cdc.topic import TableName
from connectors.postgres.spilled import Blocks
from connectors.postgres.waiting import unkept

_BLOCK_BYTES = 100
"""The memory of a block beside its bytes, roughly."""


class Raw:
    """First in, first out. ``table``: whose they are. ``memory_bytes``: beyond it they go to files in ``folder``.
    SourceError when one cannot be written or read."""

    def __init__(self, table: TableName, memory_bytes: int, folder: str | None) -> None:
        self._table = table
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._head: deque[bytes] = deque()
        self._head_bytes = 0
        self._spilled: Blocks | None = None

    def __len__(self) -> int:
        return len(self._head) + (len(self._spilled) if self._spilled else 0)

    @property
    def size_bytes(self) -> int:
        """The bytes queued, in memory and in files."""
        return self._head_bytes + (self._spilled.size_bytes if self._spilled else 0)

    def add(self, block: bytes) -> None:
        """Append a block. SourceError where it goes to a file that cannot be written."""
        cost = len(block) + _BLOCK_BYTES
        try:
            if self._spilled or (self._head_bytes + cost > self._memory_bytes and self._head):
                if self._spilled is None:
                    self._spilled = Blocks(self._folder)
                self._spilled.append(block)
            else:
                self._head.append(block)
                self._head_bytes += cost
        except OSError as error:
            raise unkept(self._table, self._folder, error) from None

    def pop(self) -> bytes:
        """Take the oldest."""
        if not self._head and self._spilled:
            try:
                return self._spilled.pop()
            except OSError as error:
                raise unkept(self._table, self._folder, error) from None
        block = self._head.popleft()
        self._head_bytes -= len(block) + _BLOCK_BYTES
        return block

    def close(self) -> None:
        """Forget all of them."""
        self._head.clear()
        self._head_bytes = 0
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None
