"""Values that a change left out, where the cleaner may have taken a change before it, over every store (H593)."""

from __future__ import annotations

import orjson
import pytest

from cdc.position import Position
from cdc.wire.debezium.present_run import UNBROKEN_FROM
from cdc.wire.format import UNAVAILABLE
from cdc.wire.unavailable import NULL_OR_UNCHANGED
from sinks.batch import Event
from tests.contract.orders import SHAPES
from tests.contract.stores import Store, live
from tests.contract.test_unavailable import debezium_at
from tests.contract.topics import ORDERS, Topic, batch
from tests.single_rows import canonical_row


def update(topic: Topic, status: str, pos: Position, run: int | None = None, note: str | None = UNAVAILABLE) -> Event:
    """``run``: where its run began, if the log may lack a change since."""
    event = topic.upsert({"id": 1, "status": status, "note": note}, pos)
    mark = {} if run is None else {UNBROKEN_FROM: debezium_at(run).text()}
    return event._replace(value=orjson.dumps(orjson.loads(event.value or b"") | mark))


@pytest.mark.parametrize(("held", "lacking"), [("long", UNAVAILABLE), (None, NULL_OR_UNCHANGED)])
@pytest.mark.parametrize("run", [4, 5])
def test_h593_a_row_of_before_the_run_fills_nothing(store: Store, held: str | None, lacking: str, run: int) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(update(topic, "a", debezium_at(4), note=held)), SHAPES)
    done = sink.sink.apply(batch(update(topic, "b", debezium_at(7), run, lacking)), SHAPES)
    status = "b" if run == 4 else "a"
    assert live(sink, ORDERS)["1"] == canonical_row(orjson.dumps({"id": 1, "status": status, "note": held}), ORDERS)
    reasons = [refused.reason for refused in done.refused]
    assert (done.applied, len(reasons)) == ((1, 0) if run == 4 else (0, 1))
    for reason in reasons:
        assert reason.startswith("the value of note did not change, and the cleaner may have taken a change of it")
        assert "cdc connect signal snapshot" in reason
        assert "REPLICA IDENTITY FULL" in reason


@pytest.mark.parametrize(("runs", "refused"), [((5, None), True), ((5, 5), True), ((None, 5), False)])
def test_h593_the_doubt_is_that_of_the_first_that_lacks_it(
    store: Store, runs: tuple[int | None, int | None], refused: bool
) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(update(topic, "a", debezium_at(4), note="long")), SHAPES)
    events = [update(topic, status, debezium_at(n), run) for status, n, run in zip("bc", (7, 8), runs, strict=True)]
    done = sink.sink.apply(batch(*events), SHAPES)
    assert bool(done.refused) == refused
    status = "a" if refused else "c"
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"%b","note":"long"}' % status.encode(), ORDERS)


@pytest.mark.parametrize("op", ["u", "c"])
def test_h593_a_value_of_the_same_batch_is_believed(store: Store, op: str) -> None:
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(update(topic, "a", debezium_at(4), note="long")), SHAPES)
    whole = topic.row(op, {"id": 1, "status": "b", "note": "new"}, debezium_at(7))
    events = [update(topic, "a", debezium_at(6), 5), whole, update(topic, "c", debezium_at(8), 5)]
    done = sink.sink.apply(batch(*events), SHAPES)
    assert done.refused == ()
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"c","note":"new"}', ORDERS)


@pytest.mark.parametrize("at_once", [True, False])
def test_h593_a_row_that_is_read_anew_settles_it(store: Store, at_once: bool) -> None:
    """As letters are tried again: the row stands behind them, or in the store already."""
    sink, topic = store.open(), Topic()
    sink.sink.apply(batch(update(topic, "a", debezium_at(4), note="long")), SHAPES)
    parked = update(topic, "b", debezium_at(7), 5)
    read = topic.row("r", {"id": 1, "status": "r", "note": "read"}, debezium_at(9))
    for events in [[parked, read]] if at_once else [[read], [parked]]:
        assert sink.sink.apply(batch(*events), SHAPES).refused == ()
    assert live(sink, ORDERS)["1"] == canonical_row(b'{"id":1,"status":"r","note":"read"}', ORDERS)
