"""Dead letters on real servers: poison on every store, and a key that is tried again while the sinks run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from cdc.process.crash_points import CRASH_EXIT
from cdc.process.errors import Exit
from cdc.record.topic_names import dead_topic
from cdc.settings.model import Settings
from cdc.wire.dead_letter import DeadLetter, waiting
from connectors.kafka.dead_letters import DeadLetterTopic
from sinks.contract.port import OpenSink
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import NOTE, HandMadeLog, orders_schema
from tests.programs import RunCdc, Spawn, Spawned

Opened = Callable[..., OpenSink]
ON_EXECUTORS = {"driver_batch_rows": 0, "max_offsets_per_trigger": 700}
IN_DRIVER = {"driver_batch_rows": 10_000}
START_S = 240.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "cdc.toml"


@dataclass
class Cdc:
    """The command, with this test's settings file."""

    config: Path
    run_cdc: RunCdc
    spawn: Spawn

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run_cdc("--config", self.config, *arguments, timeout_s=90)

    def start(self, *arguments: str, **environment: str) -> Spawned:
        return self.spawn("cdc", "--config", self.config, *arguments, env=environment)


@pytest.fixture
def cdc(config: Path, run_cdc: RunCdc, spawn: Spawn) -> Cdc:
    return Cdc(config, run_cdc, spawn)


def letters(pipeline: HandMadeLog) -> list[DeadLetter]:
    return list(DeadLetterTopic(pipeline.log, dead_topic(pipeline.name)).read())


def shows(pipeline: HandMadeLog, store: OpenSink, key: str, status: str) -> bool:
    return bool(pipeline.shown(store).get(key, {}).get("status") == status)


def order(number: int, status: str) -> dict[str, Any]:
    return {"id": number, "status": status, "total": "1.00"}


@pytest.mark.slow
def test_h67_poison_stops_no_store_and_none_drops_it(
    pipeline: HandMadeLog, sinks: Sinks, opened: Opened, all_stores: dict[str, Any]
) -> None:
    pipeline.put([order(1, "good")])
    sound = pipeline.headers
    poison: list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]] = [
        (b"not ours", b"\xff\x00", [("x", b"y")]),
        (b'{"id":10}', None, []),
        (b'{"id":11}', b"{}", [("pos", b"1"), ("op", b"u"), ("ver", b"1")]),
        (b'{"id":12}', b"{}", [("pos", b"0" * 32), ("op", b"zz"), ("ver", b"1")]),
        (b'{"id":13}', b"{}", [("pos", b"0" * 32), ("op", b"u"), ("ver", b"1e9")]),
        (b'{"id":14}', b'{"before":null,"aft', sound()),
        (b'{"id":15}', b'{"before":null,"after":{"id":15,"status":', sound()),
        (b'{"id":16}', b"[1,2]", sound()),
        (b'{"id":17', b'{"before":null,"after":{"id":17,"status":"x","total":"1.00"},"op":"u"}', sound()),
        (b"\xff\xfe", b'{"before":null,"after":{"id":18,"status":"x","total":"1.00"},"op":"u"}', sound()),
        (b'{"id":19}', b'\xff{"before":null}', sound()),
        (b'{"__truncate":', b"{}", sound("t")),
        (b'{"__sweep":"x"}', b'{"sweep":{"floor":"zz"}}', sound("t")),
        (b'{"id":20}', b"x" * 400_000, [("", b""), ("pos", b"\x00" * 32), ("op", b"\xff")]),
    ]
    for number, (key, value, headers) in enumerate(poison):
        pipeline.put_raw(key, value, headers, partition=number % 2)
    pipeline.put([order(3, "good too")])
    settings = pipeline.settings(all_stores, **ON_EXECUTORS)
    sinks.catch_up(settings)
    for name in all_stores:
        pipeline.assert_shown(opened(settings, name))
        mine = sorted(
            (one for one in letters(pipeline) if one.sink == name), key=lambda one: (one.key or b"", one.reason)
        )
        expected = sorted((key, value) for key, value, _ in poison)
        assert sorted((one.key or b"", one.value) for one in mine) == expected, name
        assert all(one.reason for one in mine)


@pytest.mark.slow
def test_h67_a_repaired_key_is_retried_in_order_beside_the_feed(
    pipeline: HandMadeLog,
    sinks: Sinks,
    opened: Opened,
    all_stores: dict[str, Any],
    cdc: Cdc,
) -> None:
    cdc.config.write_text(pipeline.toml(all_stores, **IN_DRIVER), encoding="utf-8")
    settings = pipeline.settings(all_stores, **IN_DRIVER)
    pipeline.put([order(number, "first") for number in range(30)])
    shape = orders_schema(pipeline.name, extra=[NOTE])
    known = pipeline.shapes["orders"]
    with sinks.running(settings) as running:
        stores = {name: opened(settings, name) for name in all_stores}
        for store in stores.values():
            running.until(partial(shows, pipeline, store, "29", "first"))
        # A version that the schema topic does not have: every store has to refuse its rows.
        pipeline.shapes["orders"] = type(known)(
            **{name: getattr(shape, name) for name in shape.__slots__} | {"version": 2}
        )
        pipeline.put([order(7, "second") | {"note": "a"}])
        running.until(lambda: len(letters(pipeline)) == len(stores))
        pipeline.shapes["orders"] = known
        pipeline.put([order(7, "third"), order(8, "second")])
        running.until(lambda: len(letters(pipeline)) == 2 * len(stores))
        for store in stores.values():
            running.until(partial(shows, pipeline, store, "8", "second"))
            assert pipeline.shown(store)["7"]["status"] == "first", "what waits overtakes nothing"
        pipeline.add_shape(shape)
        retried = cdc.run("dead", "retry", "--table", "public.orders", "--key", "7")
        assert retried.returncode == Exit.OK, retried.stderr
        assert sorted(line.split()[0] for line in retried.stdout.splitlines()) == sorted(stores)
        assert retried.stdout.count('{"id":7}  applied: 2 events') == len(stores)
        assert waiting(letters(pipeline)) == []
        pipeline.put([order(9, "second")])
        for store in stores.values():
            running.until(partial(shows, pipeline, store, "9", "second"))
            assert pipeline.shown(store)["7"]["status"] == "third"
        pipeline.put([order(7, "fourth")])
        for store in stores.values():
            running.until(partial(shows, pipeline, store, "7", "fourth"))


@pytest.mark.slow
def test_a_mapping_repaired_by_hand_and_a_letter_dropped(
    pipeline: HandMadeLog,
    sinks: Sinks,
    opened: Opened,
    all_stores: dict[str, Any],
    redis_url: str,
    cdc: Cdc,
) -> None:
    """What the cache itself refuses: something else stands under the key."""
    chosen = {"cache": all_stores["cache"]}
    cdc.config.write_text(pipeline.toml(chosen), encoding="utf-8")
    settings = pipeline.settings(chosen)
    prefix = f"{pipeline.name}:public.orders"
    with redis.Redis.from_url(redis_url) as client:
        for number in (1, 2):
            client.set(f"{prefix}:{number}", "somebody else's")
        pipeline.put([order(1, "one"), order(2, "two"), order(3, "three")])
        sinks.catch_up(settings)
        pipeline.put([order(1, "later"), order(2, "later")])
        sinks.catch_up(settings)
        assert len(waiting(letters(pipeline))) == 4
        unheard = cdc.run("dead", "retry", "--key", "1", "--timeout", "0.5")
        assert unheard.returncode == Exit.UNAVAILABLE
        assert "the order stands" in unheard.stderr
        client.delete(f"{prefix}:1", f"{prefix}:2")
    with sinks.running(settings) as running:
        store = opened(settings, "cache")
        running.until(lambda: pipeline.shown(store).get("1", {}).get("status") == "later")
        refused = cdc.run("dead", "drop")
        assert refused.returncode == Exit.USAGE
        dropped = cdc.run("dead", "drop", "--sink", "cache", "--key", '{"id":2}')
        assert dropped.returncode == Exit.OK, dropped.stderr
        assert "dropped: 2 events" in dropped.stdout
        assert "cache shows no row 2 of public.orders until its next change" in dropped.stdout
        assert "2" not in pipeline.shown(store)
        pipeline.put([order(2, "last")])
        running.until(lambda: pipeline.shown(store) == pipeline.rows["orders"])
    assert waiting(letters(pipeline)) == []
    listed = cdc.run("dead", "list", "--json")
    assert (listed.returncode, listed.stdout) == (Exit.OK, "")


@pytest.fixture
def stuck(pipeline: HandMadeLog, all_stores: dict[str, Any], redis_url: str, config: Path, tmp_path: Path) -> Settings:
    """A cache in which something else stood under key 1, so that its order was refused; it is gone now."""
    chosen = {"cache": all_stores["cache"]}
    config.write_text(pipeline.toml(chosen, checkpoint=str(tmp_path / "checkpoints")), encoding="utf-8")
    settings = pipeline.settings(chosen)
    with redis.Redis.from_url(redis_url) as client:
        client.set(f"{pipeline.name}:public.orders:1", "somebody else's")
        pipeline.put([order(1, "one"), order(2, "two")])
    return settings


@pytest.mark.parametrize("point", ["sink_after_retry", pytest.param("sink_after_answers", marks=pytest.mark.long)])
@pytest.mark.slow
def test_h67_killed_in_a_retry_it_is_carried_out_once_more(
    pipeline: HandMadeLog, sinks: Sinks, stuck: Settings, opened: Opened, redis_url: str, cdc: Cdc, point: str
) -> None:
    sinks.catch_up(stuck)
    with redis.Redis.from_url(redis_url) as client:
        client.delete(f"{pipeline.name}:public.orders:1")
    cdc.run("dead", "retry", "--timeout", "0")
    pipeline.put([order(1, "later")])
    program = cdc.start("sink", CDC_CRASH_AT=point)
    assert program.wait(START_S) == CRASH_EXIT, program.stderr
    pipeline.put([order(1, "last")])
    sinks.catch_up(stuck)
    pipeline.assert_shown(opened(stuck, "cache"))
    assert waiting(letters(pipeline)) == []
