"""Older rows put back into an Iceberg table under a newer watermark, in ways that its snapshots do not tell at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_spark import iceberg_spark
from sinks.kinds import spec_for
from sinks.port import PlaceMissing
from sinks.registry import SinkSpec
from tests.contract.orders import order, statuses
from tests.contract.topics import ORDERS, Topic
from tests.fresh import fresh_name
from tests.integration.sinks.test_spark_iceberg import MARK, by_spark, opened, put
from tests.lakes import foreign_table, lake_catalog

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.fixture
def lake(spark_session: SparkSession, database: str, warehouse: Path) -> Iterator[SinkSpec]:
    """A catalog and a warehouse with a table of some commits."""
    login = lake_catalog(database)
    options = {**login.options, "path": str(warehouse)}
    spec = spec_for("iceberg", prefix=fresh_name(), options=options, secrets=login.secrets)
    topic = Topic()
    with closing(opened(spec)) as store:
        put(store, topic, 1, order(1, "a"))
        put(store, topic, 2, order(1, "b"))
        put(store, topic, 3, order(2, "b"))
        store.commit(MARK)
    iceberg_spark(LakePlace.of(spec))
    yield spec


def forgets(lake: SinkSpec) -> None:
    with closing(opened(lake)) as store:
        store.sink.prepare(ORDERS)
        assert store.watermarks.read() is None
        assert statuses(store) == {}


def test_h485_rows_replaced_by_a_statement_are_another_table(lake: SinkSpec) -> None:
    """As who puts a backup back: the table's identity stays, and its state has no state before."""
    by_spark(lake, "create or replace table {t} as select * from {t} where id = 1")
    forgets(lake)


def test_h485_rows_replaced_by_a_statement_under_a_sink(lake: SinkSpec) -> None:
    with closing(opened(lake)) as store:
        store.sink.prepare(ORDERS)
        by_spark(lake, "create or replace table {t} as select * from {t} where id = 1")
        with pytest.raises(PlaceMissing):
            store.watermarks.read()
    forgets(lake)


def test_h485_a_state_gone_back_to_whose_later_ones_expired(lake: SinkSpec) -> None:
    """And that somebody has written to since."""
    with foreign_table(lake) as table:
        first = table.snapshots()[0].snapshot_id
    by_spark(lake, f"call lake.system.rollback_to_snapshot('{{at}}', {first})")
    by_spark(lake, "update {t} set note = 'mine'")
    by_spark(lake, "call lake.system.expire_snapshots(table => '{at}', older_than => timestamp '2099-01-01')")
    forgets(lake)


def test_h485_expiry_behind_others_is_no_older_state(lake: SinkSpec) -> None:
    for note in ("mine", "mine too"):
        by_spark(lake, f"update {{t}} set note = '{note}'")
    by_spark(lake, "call lake.system.expire_snapshots(table => '{at}', older_than => timestamp '2099-01-01')")
    with closing(opened(lake)) as store:
        store.sink.prepare(ORDERS)
        assert store.watermarks.read() == MARK
        assert statuses(store) == {"1": "b", "2": "b"}
