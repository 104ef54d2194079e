"""Stores' URLs that are none: one sentence each, with what to write, and nothing of the URL."""

from __future__ import annotations

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError
from sinks.cache.cache_client import URLS
from sinks.contract.kinds import kind_named, spec_for
from sinks.contract.sink_spec import attribute, open_sink
from sinks.contract.store_connection import place


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("redis", "redis://canary:abc"),
        ("redis", "redis://canary:65536"),
        ("redis", "http://canary:6379"),
        ("redis", "canary:6379"),
        ("redis", "redis://[canary"),
        ("redis", "redis://localhost?socket_timeout=canary"),
        ("opensearch", "http://canary:abc"),
        ("opensearch", "https://canary:65536"),
        ("opensearch", "redis://canary:9200"),
        ("sql", "postgresql+psycopg://canary:abc/db"),
        ("sql", "canary"),
    ],
)
def test_a_url_that_is_none_is_one_sentence_with_a_hint(kind: str, url: str) -> None:
    spec = spec_for(kind, prefix="shop", options={"url": url})
    for opened in (True, False):
        with pytest.raises(ConfigError) as refused:
            if opened:
                open_sink(spec, ManualClock())
            else:
                attribute(kind_named(kind).probe, kind)(spec)
        assert "url" in refused.value.message
        assert refused.value.hint
        assert kind == "sql" or "canary" not in f"{refused.value.message}{refused.value.hint}"


def test_the_place_of_a_url_has_no_login_in_it() -> None:
    assert place("rediss://user:secret@h:6380/1", URLS) == "h:6380"
    assert place("unix:///run/redis.sock", URLS) == "localhost"
