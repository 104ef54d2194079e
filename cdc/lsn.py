"""Postgres log sequence numbers."""

from __future__ import annotations

import re

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
