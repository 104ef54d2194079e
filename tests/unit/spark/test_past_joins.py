"""What a stream that is joined with a history is refused for, and what its digest holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from cdc.process.clock import ManualClock
from cdc.process.errors import ConfigError, SinkError, UsageError
from cdc.settings.stream_settings import EventsSettings
from connectors.streams.stream_histories import require_one_text
from connectors.streams.stream_topics import digest_of
from spark.frames.event_cuts import require_events
from spark.frames.ports import EventTopic
from spark.streams.stream_query import RunningStream
from spark.streams.stream_runner import _Supervision
from spark.streams.stream_text import StreamSpec
from spark.streams.typed_events import Events
from tests.contract.topics import column, numeric, shape

EVENTS = Events(
    name="requests",
    topic="shop.outbox.Request",
    time="at",
    late_s=600.0,
    schema="at timestamp, id int",
)
SPEC = StreamSpec(name="s", sql="select id from requests", key=("id",), mode="update", events=[EVENTS])
JOINED = replace(EVENTS, as_of="public.orders", on=("id",))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"as_of": "public.orders"}, "as_of and on go together"),
        ({"on": ["id"]}, "as_of and on go together"),
        ({"as_of": "orders", "on": ["id"]}, "orders is no table"),
        ({"as_of": "public.orders", "on": ["id)"]}, "name a column"),
    ],
)
def test_settings_that_are_half_are_refused(given: dict[str, object], words: str) -> None:
    document = {"topic": "t", "time": "at", "schema": EVENTS.schema, **given}
    with pytest.raises(ValidationError, match=words):
        EventsSettings.model_validate(document)


@pytest.mark.parametrize("kind", ["numeric", "bpchar", "citext", "interval"])
def test_a_key_of_several_texts_is_refused(kind: str) -> None:
    """Postgres holds 1.5 and 1.50 equal. A text that is compared does not."""
    keys = [
        replace(one, key_position=1) for one in (numeric("price", 10, 2), column("id", "int8"), column("c", "uuid"))
    ]
    require_one_text("as_of public.orders", shape(*keys))
    with pytest.raises(ConfigError, match=f"has the column id of {kind}, of which equal values"):
        require_one_text("as_of public.orders", shape(column("id", kind, key=1)))
    with pytest.raises(ConfigError, match="has the column price of numeric"):
        require_one_text("as_of public.orders", shape(replace(numeric("price", 50, 2), key_position=1)))


def test_the_digest_holds_what_is_joined() -> None:
    joined = [replace(SPEC, events=[one]) for one in (JOINED, replace(JOINED, on=("at",)))]
    assert len({digest_of(one) for one in (SPEC, *joined)}) == 3
    # Of a stream without a join it is as it was, or each would have to be built anew.
    assert digest_of(SPEC) == "064e6c250f51741b5f6848978712bff2"


def test_events_of_another_program_are_not_joined() -> None:
    topic = EventTopic(
        topic="seen", id="i", partitions=1, starts={0: 0}, ours=False, compacted=False, append_time=True, keep_ms=-1
    )
    require_events(topic)
    require_events(replace(topic, ours=True), joined=True)
    with pytest.raises(UsageError, match="seen is none of the pipeline's, so its events have no place"):
        require_events(topic, joined=True)


@pytest.mark.parametrize("patient", [True, False])
def test_a_store_is_not_waited_for_without_end(patient: bool) -> None:
    def start(_name: str) -> RunningStream:
        raise SinkError("the store of lake does not show public.orders__history yet")

    one = _Supervision("s", start, ManualClock(), "spark.log", patient=patient)
    one.look()
    assert (one.fault is None) == patient
