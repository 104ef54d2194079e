"""For programs that read the stores: ``from cdc.read import Cache``. No settings, Kafka or Postgres are needed."""

from __future__ import annotations

from sinks.cache.cached_rows import Cache, CachedRow

__all__ = ["Cache", "CachedRow"]
