"""The checks of the stores: pure, from :class:`StoreFacts` to findings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cdc.checks.facts import StoreFacts
from cdc.checks.finding import Finding, fail, ok, warn
from cdc.settings import OpenSearchSinkSettings, RedisSinkSettings, SinkSettings

OLDEST = {"opensearch": 2, "elasticsearch": 7, "redis": 5, "valkey": 7}
"""Major versions below these lack what the sinks use."""


def check_store(name: str, sink: SinkSettings, facts: StoreFacts) -> Iterator[Finding]:
    """Every finding about one store that answered."""
    yield check_product(name, facts)
    match sink:
        case RedisSinkSettings():
            yield check_eviction(name, facts)
        case OpenSearchSinkSettings():
            yield check_health(name, facts)
        case _:
            pass


def check_product(name: str, facts: StoreFacts) -> Finding:
    found = re.match(r"\d+", facts.version)
    oldest = OLDEST.get(facts.product.lower())
    if found and oldest and int(found[0]) < oldest:
        message = f"{facts.product} {facts.version} is older than {oldest}"
        return fail(name, "version", message, f"upgrade to {facts.product} {oldest} or later")
    return ok(name, "reachable", f"{facts.product} {facts.version}".strip() + " answers")


def check_eviction(name: str, facts: StoreFacts) -> Finding:
    """An evicted key loses its position too, so that an older event could bring an old value back (H66)."""
    policy, limit = facts.notes.get("maxmemory_policy", "noeviction"), facts.notes.get("maxmemory", "0")
    if policy != "noeviction" and limit != "0":
        message = f"{facts.product} evicts keys when it is full (maxmemory-policy {policy}), positions among them"
        return warn(name, "eviction", message, "config set maxmemory-policy noeviction   (and in its file)")
    return ok(name, "eviction", f"{facts.product} evicts nothing by itself")


def check_health(name: str, facts: StoreFacts) -> Finding:
    health = facts.notes.get("health", "")
    if health == "red":
        message = f"{facts.product}'s cluster health is red: some primary shards are not there"
        return fail(name, "health", message, "GET _cluster/allocation/explain says why")
    return ok(name, "health", f"{facts.product}'s cluster health is {health or 'unknown'}")
