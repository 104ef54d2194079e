"""The exchange of a view's steps: Spark and the double in memory carry the same steps out alike."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession

from cdc.errors import ConfigError, LogError
from cdc.views.state_faults import StateAway
from spark.views.exchange import ASKS, CONTROL, KEYS, Exchange, MemoryExchange, Parcel, gathered
from spark.views.spark_exchange import SparkExchange


@pytest.fixture(params=["memory", "spark"])
def exchange(request: pytest.FixtureRequest) -> Iterator[Exchange]:
    if request.param == "memory":
        yield MemoryExchange()
        return
    session: SparkSession = request.getfixturevalue("spark_session")
    made = SparkExchange(session, "v")
    yield made
    made.forget()


@dataclass(frozen=True)
class Summed:
    """Of each target the sum of what came, for the target that it names, and how many came."""

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        for target, parcels in gathered(found).items():
            numbers = [number for one in parcels for number in orjson.loads(one.payload)]
            yield Parcel(sum(numbers), ASKS, orjson.dumps([target]))
            yield Parcel(-1, CONTROL, orjson.dumps(["sum", target, sum(numbers)]))


@dataclass(frozen=True)
class Failing:
    disk: bool

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        list(found)
        yield Parcel(1, ASKS, b"[]")
        if self.disk:
            with open(f"{tempfile.gettempdir()}/no/such/folder", "rb"):
                pass
        raise ConfigError("a task refuses", hint="a hint")


@pytest.mark.slow
def test_all_parcels_of_a_target_come_to_one_task(exchange: Exchange) -> None:
    exchange.expect(1_000_000)
    begun = exchange.begin([Parcel(n % 7, KEYS, orjson.dumps([n])) for n in range(100)])
    first = exchange.through(begun, Summed(), [KEYS])
    second = exchange.through(exchange.joined([first, begun], [ASKS]), Summed(), [ASKS])
    told = exchange.collect(exchange.joined([first, second], [CONTROL]))
    sums = {target: sum(range(target, 100, 7)) for target in range(7)}
    expected = [["sum", target, total] for target, total in sums.items()]
    by_total: dict[int, int] = {}
    for target, total in sums.items():
        by_total[total] = by_total.get(total, 0) + target
    expected += [["sum", total, target] for total, target in by_total.items()]
    assert sorted(orjson.loads(one.payload) for one in told) == sorted(expected)


def test_an_error_of_a_task_is_raised_with_its_hint(exchange: Exchange) -> None:
    begun = exchange.begin([Parcel(1, KEYS, b"[1]")])
    with pytest.raises(ConfigError, match="a task refuses") as refused:
        exchange.collect(exchange.through(begun, Failing(False), [KEYS]))
    assert refused.value.hint == "a hint"


def test_v17_a_disk_that_is_away_is_told(exchange: Exchange) -> None:
    begun = exchange.begin([Parcel(1, KEYS, b"[1]")])
    with pytest.raises(StateAway, match="an executor cannot use the state of the view"):
        exchange.collect(exchange.through(begun, Failing(True), [KEYS]))


@dataclass(frozen=True)
class FailingOnceMore:
    """A task that a lost executor had made, and that fails when another one makes it: the file is there then."""

    lost: str

    def __call__(self, found: Iterator[Parcel]) -> Iterator[Parcel]:
        yield from found
        if Path(self.lost).exists():
            raise LogError("the brokers say nothing")


def test_h242_a_task_that_is_made_once_more_and_fails_is_told(spark_session: SparkSession, tmp_path: Path) -> None:
    exchange, lost = SparkExchange(spark_session, "v"), tmp_path / "lost"
    begun = exchange.begin([Parcel(n, KEYS, b"[1]") for n in range(4)])
    first = exchange.through(begun, FailingOnceMore(str(lost)), [KEYS])
    assert exchange.collect(first) == []
    lost.touch()
    first.unpersist(blocking=True)
    second = exchange.through(exchange.joined([first], [KEYS]), Summed(), [KEYS])
    third = exchange.through(second, Summed(), [ASKS])
    with pytest.raises(LogError, match="the brokers say nothing"):
        exchange.collect(exchange.joined([third], [CONTROL]))
    exchange.forget()
