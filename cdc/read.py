"""For programs that read the stores: ``from cdc.read import Cache, Token``. No settings and no Kafka are needed."""

from __future__ import annotations

from cdc.tokens import Token
from connectors.postgres.taken_tokens import async_token, token
from sinks.cache.cached_rows import Cache, CachedRow

__all__ = ["Cache", "CachedRow", "Token", "async_token", "token"]
