"""Former states put back into an Iceberg table under a newer watermark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import SinkSpec
from sinks.iceberg.iceberg_catalog import LakePlace
from sinks.iceberg.iceberg_spark import iceberg_spark
from sinks.iceberg.iceberg_table import PROPERTIES
from tests.contract.feeding import TRUTH, filled, goes_on
from tests.contract.stores import Store, closing
from tests.fresh import fresh_name
from tests.integration.sinks.test_spark_iceberg import by_spark
from tests.lakes import foreign_catalog, foreign_table, lake_catalog

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

Act = Callable[[SinkSpec, int], object]


@pytest.fixture
def lake(spark_session: SparkSession, database: str, warehouse: object) -> SinkSpec:
    login = lake_catalog(database)
    options = {**login.options, "path": str(warehouse)}
    spec = spec_for("iceberg", prefix=fresh_name(), options=options, secrets=login.secrets)
    iceberg_spark(LakePlace.of(spec))
    return spec


def rolled_back(lake: SinkSpec, first: int) -> None:
    by_spark(lake, f"call lake.system.rollback_to_snapshot('{{at}}', {first})")


def rolled_back_and_written(lake: SinkSpec, first: int) -> None:
    """And the states between have expired."""
    rolled_back(lake, first)
    by_spark(lake, "update {t} set note = 'mine' where cdc_key = '3'")
    by_spark(lake, "call lake.system.expire_snapshots(table => '{at}', older_than => timestamp '2099-01-01')")


def replaced(lake: SinkSpec, first: int) -> None:
    """As who puts a backup back: the table's identity stays, and its state has no state before."""
    by_spark(lake, "create or replace table {t} as select * from {t} where id = 1")


def exchanged(lake: SinkSpec, first: int) -> None:
    """Another table of its name."""
    with foreign_catalog(lake) as catalog:
        place = (catalog.place.namespace, "public_orders")
        shape_of = catalog.opened.load_table(place).schema()
        catalog.opened.drop_table(place)
        catalog.opened.create_table(place, shape_of, properties=PROPERTIES)


@pytest.mark.parametrize(
    ("act", "runs"),
    [(rolled_back, True), (rolled_back, False), (rolled_back_and_written, True), (replaced, True), (exchanged, True)],
)
def test_h354_h485_a_former_state_is_gone_on_from(lake: SinkSpec, act: Act, runs: bool) -> None:
    with closing(Store("iceberg", lake)) as store:
        feeding = filled(store)
        with foreign_table(lake) as table:
            current = table.current_snapshot()
        assert current is not None
        goes_on(feeding)
        act(lake, current.snapshot_id)
        if not runs:
            feeding.end()
        feeding.rest()
        feeding.begun()
        assert not feeding.claims_all()
        feeding.level()
        assert (feeding.shows(), feeding.claims_all()) == (TRUTH, True)
        feeding.end()


def test_h485_what_others_do_to_the_table_itself_does_no_harm(lake: SinkSpec) -> None:
    with closing(Store("iceberg", lake)) as store:
        feeding = filled(store)
        goes_on(feeding)
        for note in ("mine", "mine too"):
            by_spark(lake, f"update {{t}} set note = '{note}' where cdc_key = '3'")
        by_spark(lake, "call lake.system.expire_snapshots(table => '{at}', older_than => timestamp '2099-01-01')")
        feeding.rest()
        assert feeding.claims_all()
        assert feeding.starts == 1
        feeding.end()
