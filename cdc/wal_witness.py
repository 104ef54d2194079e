"""A note of the source's WAL that capture has read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cdc.state import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class WalWitness(Document):
    """Bytes of the source's WAL below what the log holds, in hex, from ``lsn`` on. Capture notes newer ones.

    A server that has others there was put back to an earlier state, or is another promoted standby (H192, H193). A
    document of its own: one that comes late takes nothing else back.
    """

    WHAT: ClassVar[str] = "wal_witness"
    epoch: int
    timeline: int
    lsn: int
    wal: str
