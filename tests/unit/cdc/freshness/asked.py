"""Watermarks of one server, and tokens that are waited for."""

from __future__ import annotations

from concurrent.futures import Future

from cdc.freshness.rules import (
    TokenWait,
    TokenWaits,
    Wanted,
)
from cdc.record.position import Lsn
from cdc.record.progress import Hold, Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.record.tokens import Token

LINEAGE = SourceLineage("7", 2, ((1, 90),))
HOLD = Hold(table="public.a", reason="public.a: column n is text in the store, and integer in the source now")


def at(lsn: int) -> Watermark:
    ids = {"shop.public.a": "1", "shop.public.b": "2", "shop.view.totals.2": "3"}
    return Watermark(epoch=1, lsn=lsn, lineage=LINEAGE, topic_ids=ids)


def wanted(lsn: int, *tables: str, timeline: int = 2, system: str = "7", once: bool = False) -> TokenWait:
    return TokenWait(Wanted("the cache", Token(system, timeline, Lsn(lsn)), frozenset(tables), once))


def put(waiting: TokenWaits, wait: TokenWait) -> Future[Watermark]:
    waiting.add(wait)
    return wait.answer
