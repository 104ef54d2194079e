"""The cache as a kind of sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field

from cdc.checks.findings import Finding, ok, warn
from cdc.record.server_facts import StoreFacts
from cdc.settings.setting_types import SecretRef, Url
from cdc.settings.sink_settings import SinkSettings
from sinks.contract.kinds import Rebuilds, SinkKind


class RedisSinkSettings(SinkSettings):
    """A cache in Redis or Valkey."""

    kind: Literal["redis"] = Field("redis", description="Redis or Valkey")
    url: Url = Field(description="redis://host:port/db or rediss://")
    password: SecretRef | None = Field(None, description="env:NAME, file:PATH or command:PROGRAM")

    schemes_in_the_clear: ClassVar[Mapping[str, str]] = {"redis": "rediss"}

    @property
    def place(self) -> str:
        return self.url.rstrip("/")


def check_eviction(name: str, facts: StoreFacts) -> Iterator[Finding]:
    """An evicted key loses its position too, so that an older event could bring an old value back."""
    policy, limit = facts.notes.get("maxmemory_policy", "noeviction"), facts.notes.get("maxmemory", "0")
    if policy != "noeviction" and limit != "0":
        message = f"{facts.product} evicts keys when it is full (maxmemory-policy {policy}), positions among them"
        yield warn(name, "eviction", message, "config set maxmemory-policy noeviction   (and in its file)")
    else:
        yield ok(name, "eviction", f"{facts.product} evicts nothing by itself")


KIND = SinkKind(
    name="redis",
    settings=RedisSinkSettings,
    opener="sinks.cache.cache_store:open_cache",
    probe="sinks.cache.cache_client:probe_cache",
    facts=check_eviction,
    parallel=True,
    generations=Rebuilds(opener="sinks.cache.cache_store:open_generations"),
    manual="sinks/README.md",
    kept="the key of the delete, without values, for {replay_window}. A row that read_through put beside it for its "
    "keep_s",
    oldest={"redis": 5, "valkey": 7},
    meant_by=("valkey",),
    example=("cache", {"url": "redis://127.0.0.1:6379/0"}),
)
