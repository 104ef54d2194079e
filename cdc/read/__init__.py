"""For programs that read the stores: ``from cdc.read import Cache, Token``. No settings and no Kafka are needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc.freshness.rules import NotShown
    from cdc.process.errors import CdcError
    from cdc.record.tokens import Token
    from connectors.postgres.server.connection_token import async_token, token
    from sinks.cache.cached_rows import Cache, CachedRow, ReadRow
    from sinks.contract.store_freshness import AsyncFreshness
    from sinks.contract.store_freshness import StoreFreshness as Freshness
    from spark.frames.past_tables import as_of, history

__all__ = [
    "AsyncFreshness",
    "Cache",
    "CachedRow",
    "CdcError",
    "Freshness",
    "NotShown",
    "ReadRow",
    "Token",
    "as_of",
    "async_token",
    "history",
    "token",
]

_PLACES = {
    "AsyncFreshness": "sinks.contract.store_freshness:AsyncFreshness",
    "Cache": "sinks.cache.cached_rows:Cache",
    "CachedRow": "sinks.cache.cached_rows:CachedRow",
    "CdcError": "cdc.process.errors:CdcError",
    "Freshness": "sinks.contract.store_freshness:StoreFreshness",
    "NotShown": "cdc.freshness.rules:NotShown",
    "ReadRow": "sinks.cache.cached_rows:ReadRow",
    "Token": "cdc.record.tokens:Token",
    "as_of": "spark.frames.past_tables:as_of",
    "async_token": "connectors.postgres.server.connection_token:async_token",
    "history": "spark.frames.past_tables:history",
    "token": "connectors.postgres.server.connection_token:token",
}
"""Loaded when first asked for: a program that reads a SQL store needs no client of Redis."""


if not TYPE_CHECKING:  # a type checker sees the names above, and refuses others

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'cdc.read' has no attribute {name!r}")
        module, _, wanted = _PLACES[name].partition(":")
        return getattr(import_module(module), wanted)
