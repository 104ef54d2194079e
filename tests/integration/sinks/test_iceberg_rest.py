"""An Iceberg warehouse in a REST catalog, the reference server of Iceberg's own tests, which asks for a token here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.process.errors import Exit, Retry, SinkError
from cdc.record.progress import Watermark
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import StoreAway
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.iceberg.iceberg_catalog import LakePlace, probe_iceberg
from sinks.iceberg.iceberg_spark import iceberg_spark
from tests.contract.feeding import TRUTH, filled, goes_on
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store
from tests.contract.stores import closing as closed
from tests.contract.topics import ORDERS, Shapes, Topic, at, batch, column, shape
from tests.fresh import fresh_name, new_database
from tests.lakes import foreign_table, go_back
from tests.rest_catalog import RestDoor, rest_catalog

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

TOKEN = "kein-wort-davon"
MARK = Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 4}})


@pytest.fixture(scope="module")
def door(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestDoor]:
    folder = tmp_path_factory.mktemp("rest")
    with new_database(postgres) as dsn, rest_catalog(dsn, (folder / "lake").as_uri(), folder, TOKEN) as opened:
        yield opened


@pytest.fixture
def lake(spark_session: SparkSession, door: RestDoor) -> SinkSpec:
    return spec_for(
        "iceberg", prefix=fresh_name(), options={"catalog": door.url}, secrets={"catalog.token": door.token}
    )


def fill(spec: SinkSpec, lsn: int, *numbers: int, status: str) -> None:
    with closing(open_sink(spec)) as store:
        store.sink.apply(batch(*(Topic().upsert(order(number, status), at(lsn)) for number in numbers)), SHAPES)
        store.commit(replace(MARK, lsn=lsn))


def test_h376_a_rest_catalog_is_filled_merged_and_widened(lake: SinkSpec) -> None:
    fill(lake, 1, 1, 2, 3, status="a")
    fill(lake, 2, 2, 4, status="b")
    wider = shape(*ORDERS.columns, column("more", "text"), version=2)
    with closing(open_sink(lake)) as store:
        events = [Topic(wider).upsert({**order(5, "c"), "more": "x"}, at(3)), *Topic(wider).delete(order(1), at(3))]
        store.sink.apply(batch(*events), Shapes(ORDERS, wider))
        assert statuses(store) == {"2": "b", "3": "a", "4": "b", "5": "c"}
    place = LakePlace.of(lake)
    spark = iceberg_spark(place)
    found = spark.sql(f"select more from {spark.table(place.namespace, 'public_orders')} where id = 5")
    assert [row["more"] for row in found] == ["x"]


def test_h376_generations_of_a_rest_catalog_go_to_and_fro(lake: SinkSpec) -> None:
    fill(lake, 9, 1, status="old")
    fill(beside(lake, 2), 20, 1, status="new")
    for number, status in ((2, "new"), (1, "old")):
        with closing(open_generations(lake)) as generations:
            generations.switch(number, [ORDERS])
            assert generations.in_use() == number
        with closing(open_sink(lake)) as store:
            assert statuses(store) == {"1": status}
    fill(lake, 30, 2, status="more")
    with closing(open_generations(lake)) as generations:
        generations.discard(2, [ORDERS])
    with closing(open_sink(lake)) as store:
        assert statuses(store) == {"1": "old", "2": "more"}


def test_h376_a_token_that_is_refused_ends_at_once(lake: SinkSpec, door: RestDoor) -> None:
    wrong = replace(lake, secrets={"catalog.token": "falsch"})
    before = len(door.asked)
    for ask in (probe_iceberg, lambda spec: open_sink(spec).watermarks.read()):
        with pytest.raises(SinkError, match="refuses the login") as refused:
            ask(wrong)
        assert (refused.value.exit, refused.value.retry) == (Exit.CONFIG, Retry.SECRET)
        assert "falsch" not in refused.value.message + refused.value.hint
    assert len(door.asked) - before < 10, "a login is not tried again"


def test_h376_a_rest_catalog_that_is_away_is_waited_for(lake: SinkSpec, door: RestDoor) -> None:
    fill(lake, 1, 1, status="a")
    with closing(open_sink(lake)) as store:
        assert store.watermarks.read() is not None
        door.away = True
        try:
            with pytest.raises(StoreAway, match="Iceberg") as away:
                store.sink.apply(batch(Topic().upsert(order(1, "b"), at(2))), SHAPES)
        finally:
            door.away = False
        assert (away.value.exit, away.value.retry) == (Exit.UNAVAILABLE, Retry.LATER)
        store.sink.apply(batch(Topic().upsert(order(1, "b"), at(2))), SHAPES)
        assert statuses(store) == {"1": "b"}


def test_h385_an_idle_table_is_opened_once_a_minute(lake: SinkSpec) -> None:
    with closed(Store("iceberg", lake)) as store:
        feeding = filled(store)
        with foreign_table(lake) as table:
            current = table.current_snapshot()
        assert current is not None
        goes_on(feeding)
        with foreign_table(lake) as table:
            go_back(table, current.snapshot_id)
        feeding.rest(2.0)
        assert feeding.claims_all(), "nobody has looked"
        feeding.rest(61.0)
        feeding.begun()
        assert not feeding.claims_all()
        feeding.level()
        assert (feeding.shows(), feeding.claims_all()) == (TRUTH, True)
        feeding.end()


def test_h376_no_setting_of_spark_has_the_token(lake: SinkSpec, spark_session: SparkSession) -> None:
    fill(lake, 1, 1, status="a")
    fill(lake, 2, 1, status="b")
    sessions = iceberg_spark(LakePlace.of(lake))._sessions.values()
    assert sessions
    for one in (*sessions, spark_session):
        assert TOKEN not in str(one.sql("set -v").collect())
    assert TOKEN not in repr(lake) + repr(LakePlace.of(lake))
    command = Path(f"/proc/{spark_session.sparkContext._gateway.proc.pid}/cmdline")  # type: ignore[union-attr]
    assert TOKEN.encode() not in command.read_bytes()
