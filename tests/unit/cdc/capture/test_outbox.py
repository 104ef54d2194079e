"""What an outbox event is read from, and what is none."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.capture.outbox import MalformedEvent, OutboxEvent, OutboxRules, message_members
from cdc.process.errors import ConfigError
from cdc.settings.model import parse

RULES = OutboxRules(topic_name="shop.outbox.{aggregatetype}")
NAMES = ("id", "aggregatetype", "aggregateid", "type", "payload")
ROW = (b"1", b"Order", b"7", b"Placed", b'{"n": 1.10}')


def of_row(*values: bytes | None, rules: OutboxRules = RULES) -> OutboxEvent:
    return rules.of_row(NAMES, values or ROW, frozenset())


def test_a_row_and_a_message_are_one_event() -> None:
    content = b'{"id": "1", "aggregatetype": "Order", "aggregateid": 7, "type": "Placed", "payload": {"n": 1.10}}'
    event = of_row()
    assert event == RULES.of_message(content)
    assert (event.topic, event.key, event.value) == ("shop.outbox.Order", b"7", b'{"n": 1.10}')
    assert event.placed(b"p", 5) == [("pos", b"p"), ("id", b"1"), ("eventType", b"Placed"), ("at", b"5")]


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, None, "its id is empty"),
        (1, b"", "its aggregatetype is empty"),
        (2, None, "its aggregateid is empty"),
        (4, b"{", "its payload is no JSON"),
        (4, b"\xff", "its payload is no JSON"),
        (4, b"NaN", "its payload is no JSON"),
        (1, b"x" * 300, "its aggregatetype makes a topic of over 249 characters"),
    ],
)
def test_a_row_that_is_no_event_is_refused(at: int, value: bytes | None, reason: str) -> None:
    with pytest.raises(MalformedEvent) as refused:
        of_row(*(value if place == at else known for place, known in enumerate(ROW)))
    assert refused.value.fault == reason


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"7", b'{"a": 1', b'{"a": 1} x', b'{"a" 1}', b"{a: 1}", b'{"a": 1,}', b'{"a": NaN}', b"\xff", b"{,}"],
)  # fmt: skip
def test_a_text_that_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedEvent, match="no JSON object"):
        message_members(content, "payload")


def test_a_member_that_is_missing_is_named() -> None:
    with pytest.raises(MalformedEvent, match="it has no type"):
        RULES.of_message(b'{"id": "1", "aggregatetype": "Order", "aggregateid": "7", "payload": null}')


def test_a_null_payload_is_none_and_a_null_header_is_left_out() -> None:
    event = of_row(b"1", b"Order", b"7", None, None)
    assert event.value is None
    assert event.headers == [("id", b"1")]


def test_members_and_headers_are_called_as_the_settings_say() -> None:
    rules = OutboxRules(topic_name="t", id="key", payload="body", headers={"tenant": "tenant"})
    names = ("key", "aggregatetype", "aggregateid", "type", "body", "tenant")
    event = rules.of_row(names, (b"1", b"Order", b"7", b"A", b"1", b"x"), frozenset({"body"}))
    assert event.headers == [("id", b"1"), ("tenant", b"x")]
    assert event.topic == "t"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=5), JSON, st.sampled_from([None, 1]), st.booleans())
@example({}, "a text keeps its quotes", None, False)
def test_what_is_written_as_json_is_read_as_it_was(
    members: dict[str, object], payload: object, indent: int | None, escaped: bool
) -> None:
    written = json.dumps({**members, "payload": payload}, indent=indent, ensure_ascii=escaped)
    content = written.encode("utf-8", "surrogatepass")
    try:
        content.decode()
    except UnicodeDecodeError:
        return
    found = message_members(content, "payload")
    assert found.keys() == members.keys() | {"payload"}
    read: Callable[[bytes | None], object] = lambda text: None if text is None else json.loads(text)  # noqa: E731
    assert read(found["payload"]) == payload


def settings(**outbox: object) -> dict[str, object]:
    return {
        "name": "shop",
        "source": {"dsn": "dbname=shop", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:9"},
        "outbox": outbox,
    }


def test_no_pattern_takes_the_outbox_table() -> None:
    assert parse(settings(table="public.outbox")).source.exclude == ("public.outbox",)


@pytest.mark.parametrize(
    ("outbox", "word"),
    [
        ({"message": ""}, "neither a table nor a message"),
        ({"table": "outbox"}, "with its schema"),
        ({"table": "public.*"}, "with its schema"),
        ({"message": "a b"}, "a prefix is"),
        ({"message": "o", "topic": "orders"}, "a topic of events is"),
        ({"message": "o", "topic": "{name}-outbox"}, "a topic of events is"),
        ({"message": "o", "headers": {"pos": "type"}}, "a meaning of its own"),
        ({"message": "o", "headers": {"Ver": "type"}}, "a meaning of its own"),
        ({"message": "o", "headers": {"a b": "type"}}, "no header's name"),
    ],
)
def test_an_outbox_that_cannot_be_is_refused_in_a_sentence(outbox: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word.replace("{", r"\{")):
        parse(settings(**outbox))


def test_debezium_routes_its_events_itself() -> None:
    document = settings(message="outbox") | {"debezium": {}}
    document["source"] = {"dsn": "dbname=shop", "tables": ["public.a"], "kind": "debezium"}
    with pytest.raises(ConfigError, match="is for cdc run"):
        parse(document)
    document = {**document, "history": {"tables": ["public.a"]}}
    del document["outbox"]
    with pytest.raises(ConfigError, match=r"\[history\] is for cdc run"):
        parse(document)
