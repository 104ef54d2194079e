"""A store that several applications feed, each its share of the tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.errors import ActiveError, ConfigError, Exit
from cdc.progress import SharedWatermark
from cdc.settings import Settings
from cdc.shares import Share
from cdc.wiring.rebuild import open_rebuild
from cdc.wiring.shares import change_shares, of_share
from sinks.port import OpenSink
from sinks.stores import open_store
from spark.application import SinkApplication
from tests.integration.spark.conftest import Sinks
from tests.integration.spark.handmade import HandMadeLog
from tests.programs import RunCdc, Spawn
from tests.waiting import wait_until

Opened = Callable[[Settings, str], OpenSink]
START_S = 240.0
TABLES = ("orders", "lines", "people", "shops", "carts", "stock", "bills", "notes")


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str) -> HandMadeLog:
    made = HandMadeLog(topic_prefix, kafka, tables=TABLES)
    made.init()
    return made


@pytest.fixture
def cached(pipeline: HandMadeLog, redis_url: str) -> Settings:
    return pipeline.settings({"cache": {"kind": "redis", "url": redis_url}})


def put(pipeline: HandMadeLog, first: int, last: int) -> int:
    """Rows of each table, and the LSN below which they are."""
    for table in TABLES:
        pipeline.put([{"id": n, "status": table, "total": "1.00"} for n in range(first, last)], table=table)
    return pipeline.progress()


def own(application: SinkApplication, text: str) -> SinkApplication:
    """The application of one share."""
    return of_share(application, Share.parse(text))


def catch_up(sinks: Sinks, settings: Settings, *shares: str) -> None:
    """Feed the store by each share in turn, until it shows what the topics hold."""
    for text in shares:
        made = own(sinks.application(settings), text)
        sinks.catch_up(settings, **{name: getattr(made, name) for name in ("specs", "facts", "dead", "open_letters")})


def whole(store: OpenSink) -> int:
    """How many shares the store has, and none of them unread."""
    mark = store.watermarks.read()
    assert mark is not None
    assert {topic.rpartition(".")[2] for topic in mark.topic_ids} == set(TABLES)
    return len(mark.parts)


def assert_all_shown(pipeline: HandMadeLog, store: OpenSink) -> None:
    for table in TABLES:
        pipeline.assert_shown(store, table)


@pytest.mark.slow
def test_h371_another_number_of_shares_reads_on(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, opened: Opened
) -> None:
    put(pipeline, 0, 20)
    catch_up(sinks, cached, "1/2", "2/2")
    store = opened(cached, "cache")
    assert whole(store) == 2
    assert_all_shown(pipeline, store)
    before = store.watermarks.read()
    for count in (3, 2, 1, 3):
        moved = change_shares(cached, "cache", count)
        assert before is not None and moved is not None
        assert moved.offsets == before.offsets and moved.lsn == before.lsn
        assert whole(store) == count
    put(pipeline, 10, 30)
    catch_up(sinks, cached, "1/3", "2/3", "3/3")
    assert_all_shown(pipeline, store)
    change_shares(cached, "cache", 1)
    put(pipeline, 30, 40)
    sinks.catch_up(cached)
    assert_all_shown(pipeline, store)


def test_a_token_waits_for_the_shares_of_its_tables(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, redis_url: str
) -> None:
    pipeline.progress()
    lsn = put(pipeline, 0, 5)
    catch_up(sinks, cached, "1/2")
    mine = [f"public.{table}" for table in TABLES if Share(1, 2).has(pipeline.topic(table))]
    others = [f"public.{table}" for table in TABLES if Share(2, 2).has(pipeline.topic(table))]
    assert mine and others
    store = open_mark(cached)
    assert store.lsn == 0 and [part.lsn > 0 for part in store.parts] == [True, False]
    catch_up(sinks, cached, "2/2")
    assert open_mark(cached).lsn == lsn


def open_mark(settings: Settings) -> SharedWatermark:
    store = open_store("cache", settings)
    try:
        mark = store.watermarks.read()
    finally:
        store.close()
    assert isinstance(mark, SharedWatermark)
    return mark


def test_h370_shares_that_do_not_fit_are_refused(
    pipeline: HandMadeLog, sinks: Sinks, cached: Settings, tmp_path: Path
) -> None:
    put(pipeline, 0, 5)
    catch_up(sinks, cached, "1/2")
    for wrong in ("1/3", "2/3"):
        with pytest.raises(ActiveError, match=f"fed in 2 shares, and this application is share {wrong}") as refused:
            catch_up(sinks, cached, wrong)
        assert refused.value.exit == Exit.ACTIVE
    with pytest.raises(ActiveError, match="fed in 2 shares, and this application feeds all tables"):
        sinks.catch_up(cached)
    with pytest.raises(ConfigError, match="a rebuild needs one application"), open_rebuild(cached, "cache"):
        pass
    with pytest.raises(ConfigError, match="no table of cache is of share"):
        for number in range(1, 101):
            of_share(sinks.application(cached), Share(number, 100)).facts.topics("cache")
    merged = {"kind": "delta", "path": str(tmp_path / "lake"), "engine": "spark"}
    for alone in (merged, {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"}):
        with pytest.raises(ConfigError, match="takes one application alone"):
            change_shares(pipeline.settings({"warehouse": alone}), "warehouse", 2)


@pytest.mark.slow
def test_h371_processes_of_shares_fed_moved_and_killed(
    pipeline: HandMadeLog, redis_url: str, tmp_path: Path, opened: Opened, spawn: Spawn, run_cdc: RunCdc
) -> None:
    """Two shares as two processes, one killed, then three in their place."""
    stores = {"cache": {"kind": "redis", "url": redis_url}}
    config = tmp_path / "cdc.toml"
    config.write_text(pipeline.toml(stores, checkpoint=str(tmp_path / "checkpoints")), encoding="utf-8")
    settings = pipeline.settings(stores)
    store = opened(settings, "cache")
    lsn = put(pipeline, 0, 200)
    two = [spawn("cdc", "--config", config, "sink", "--share", f"{number}/2") for number in (1, 2)]
    wait_until(lambda: shows(store, lsn), START_S, lambda: "\n".join(one.stderr for one in two))
    assert_all_shown(pipeline, store)
    again = spawn("cdc", "--config", config, "sink", "--share", "1/2")
    two[0].process.kill()
    two[0].process.wait(60)
    lsn = put(pipeline, 100, 300)
    wait_until(lambda: shows(store, lsn), START_S, lambda: again.stderr)
    assert_all_shown(pipeline, store)
    # Shares that nobody has stopped end by themselves: what they write counts no more.
    assert run_cdc("--config", config, "share", "cache", "3").returncode == Exit.OK
    assert two[1].process.wait(120) == Exit.ACTIVE, two[1].stderr
    assert again.process.wait(120) == Exit.ACTIVE, again.stderr
    lsn = put(pipeline, 200, 400)
    three = [spawn("cdc", "--config", config, "sink", "--share", f"{number}/3") for number in (1, 2, 3)]
    wait_until(lambda: shows(store, lsn), START_S, lambda: "\n".join(one.stderr for one in three))
    assert_all_shown(pipeline, store)
    assert whole(store) == 3
    assert [one.terminate(120) for one in three] == [Exit.OK] * 3


def shows(store: OpenSink, lsn: int) -> bool:
    mark = store.watermarks.read()
    return mark is not None and mark.lsn >= lsn
