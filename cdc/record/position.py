"""Postgres's log sequence numbers, and the one order of all changes: ``(epoch, commit_lsn, tx_seq)``."""

from __future__ import annotations

import re
from typing import NamedTuple

SNAPSHOT_SEQ = 0
"""tx_seq of a row of the first snapshot: below every streamed change at that commit LSN."""
CHUNK_SEQ = 0xFFFFFFFF
"""tx_seq of a row of a later chunk: above every streamed change of the commit it was read behind."""
MAX_EPOCH = 127
_ALIGNMENT = 7
"""Records of the write-ahead log begin at multiples of eight bytes."""


class Position(NamedTuple):
    """A place in the order. Compares left to right, and so does its text.

    >>> Position(1, 0x16B3D48, 3).text()
    '0000000100000000016b3d4800000003'
    >>> Position.parse('0000000100000000016b3d4800000003')
    Position(epoch=1, commit_lsn=23805256, tx_seq=3)
    """

    epoch: int
    commit_lsn: int
    tx_seq: int

    def text(self) -> str:
        """32 lower-case hex digits."""
        return f"{self.epoch:08x}{self.commit_lsn:016x}{self.tx_seq:08x}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read :meth:`text` back. Raises ValueError when it is not 32 hex digits."""
        if len(text) != 32:
            raise ValueError(f"not a position: {text!r}")
        return cls(int(text[:8], 16), int(text[8:24], 16), int(text[24:], 16))

    @property
    def streamed(self) -> bool:
        """Whether this is a streamed change, not a row of a snapshot.

        Debezium's records carry no tx_seq. Theirs lie between two commits, at an LSN that is not aligned.
        """
        if self.tx_seq == SNAPSHOT_SEQ:
            return self.commit_lsn & _ALIGNMENT != 0
        return self.tx_seq != CHUNK_SEQ

    def document_version(self) -> int:
        """The version of a search document: ``epoch<<56 + commit_lsn + kind``.

        LSNs of commits are 8-byte aligned, so the low three bits hold the kind: 0 row of the first snapshot,
        1 event, 7 row of a later chunk. An LSN that is not aligned (Debezium's event, one below where the commit
        before it ended) counts as the next aligned one: above a chunk at that commit, and not above the event's
        own commit, which begins there at the earliest. Fits a signed 64-bit number up to epoch 127.

        >>> Position(1, 0x1000, CHUNK_SEQ).document_version() < Position(1, 0x1001, 0).document_version()
        True
        """
        kind = {SNAPSHOT_SEQ: 0, CHUNK_SEQ: 7}.get(self.tx_seq, 1)
        aligned = (self.commit_lsn + _ALIGNMENT) & ~_ALIGNMENT
        return (self.epoch << 56) + aligned + kind


_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class Lsn(int):
    """A byte position in the write-ahead log. Prints as Postgres prints it.

    >>> Lsn.parse("0/16B3D48")
    Lsn(0/16B3D48)
    >>> int(Lsn.parse("1/0"))
    4294967296
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Lsn:
        """Read ``X/X`` as Postgres writes it. Raises ValueError on anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not an LSN: {text!r}")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{int(self) >> 32:X}/{int(self) & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn({self})"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)
