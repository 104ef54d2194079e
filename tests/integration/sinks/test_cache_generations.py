"""Two generations of a cache beside each other, on a real Valkey: which is in use, and when the other one expires."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import redis

from cdc.process.clock import ManualClock
from cdc.process.errors import SinkError
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.sink_spec import SinkSpec, open_sink
from tests.contract.topics import ORDERS, Topic, at, batch
from tests.integration.sinks.test_cache import KEY, ROW, SHAPES

OTHER = "shop@2:public.orders:1"


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def two_generations(url: str, spec: SinkSpec) -> None:
    """A row in each of them, and the memory of a delete."""
    for number, spec_of in ((1, spec), (2, beside(spec, 2))):
        sink, topic = open_sink(spec_of), Topic()
        sink.sink.apply(batch(topic.upsert(ROW, at(number)), topic.delete({**ROW, "id": 5}, at(number, 3))), SHAPES)
        sink.commit(Watermark(epoch=1, lsn=number))
        sink.close()


def test_an_abandoned_generation_expires_and_a_rollback_keeps_it(redis_url: str, server: redis.Redis) -> None:
    spec = spec_for("redis", prefix="shop", options={"url": redis_url, "replay_window_s": 3600.0})
    two_generations(redis_url, spec)
    with contextlib.closing(open_generations(spec)) as generations:
        for _ in range(2):
            generations.switch(2, [ORDERS])
            assert generations.in_use() == 2
            assert 0 < server.ttl(KEY) <= 3600
            assert server.ttl(OTHER) == -1
        generations.switch(1, [ORDERS])
        assert generations.in_use() == 1
        assert (server.ttl(KEY), server.ttl("shop:_watermark")) == (-1, -1)
        assert 0 < server.ttl(OTHER) <= 3600
        assert 0 < server.ttl("shop:public.orders:5") <= 3600, "the memory of a delete expires as ever"


def test_an_interrupted_switch_lets_the_old_generation_expire(redis_url: str, server: redis.Redis) -> None:
    spec = spec_for("redis", prefix="shop", options={"url": redis_url, "replay_window_s": 3600.0})
    two_generations(redis_url, spec)
    # As a kill leaves it behind the word on which is in use.
    server.hset("shop:_watermark", mapping={"leaving": "1", "expires": "1", "generation": "2"})
    with contextlib.closing(open_generations(spec)) as generations:
        generations.switch(2, [ORDERS])
    assert 0 < server.ttl(KEY) <= 3600
    assert not server.hexists("shop:_watermark", "leaving")


def test_a_generation_that_has_expired_is_not_gone_back_to(redis_url: str, server: redis.Redis) -> None:
    spec = spec_for("redis", prefix="shop", options={"url": redis_url, "replay_window_s": 3600.0})
    two_generations(redis_url, spec)
    clock = ManualClock()
    with contextlib.closing(open_generations(spec, clock)) as generations:
        generations.switch(2, [ORDERS])
        clock.advance(3600 - 30)
        with pytest.raises(SinkError, match="has expired") as refused:
            generations.switch(1, [ORDERS])
        assert "cdc rebuild" in refused.value.hint
        assert generations.in_use() == 2
        assert server.ttl(OTHER) == -1
