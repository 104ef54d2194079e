"""What a task of Spark's hands on of the errors of tasks before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc.errors import LogError
from spark.views.exchange import ASKS, FAULT, KEYS, Parcel, Step
from spark.views.spark_exchange import _batch, _carried, _fault, _parcels


def carried(step: Step, parcels: Sequence[Parcel]) -> list[Parcel]:
    """All that a task makes of these."""
    return [one for batch in _carried(step, iter(_batch(parcels).to_batches())) for one in _parcels(batch)]


def failing(_found: Iterator[Parcel]) -> Iterator[Parcel]:
    yield Parcel(1, KEYS, b"[0]")
    raise LogError("the brokers say nothing", hint="a hint")


def passed_on(found: Iterator[Parcel]) -> Iterator[Parcel]:
    for one in found:
        yield Parcel(one.target, ASKS, one.payload)


def test_h242_an_error_goes_through_the_tasks_that_follow() -> None:
    parcels = carried(failing, [Parcel(1, KEYS, b"[1]")])
    assert [one.tag for one in parcels] == [KEYS, FAULT]
    after = carried(passed_on, carried(passed_on, [parcels[1], Parcel(1, KEYS, b"[2]")]))
    assert after[0] == Parcel(1, ASKS, b"[2]"), "no step is given an error"
    assert [one.tag for one in after[1:]] == [FAULT]
    found = _fault(after[1])
    assert (type(found), found.message, found.hint) == (LogError, "the brokers say nothing", "a hint")
