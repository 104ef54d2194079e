"""Outbox events: what a transaction of the source writes, beside its rows, for others to read. Pure.

An event comes as a row that is inserted into the outbox table, or as a logical message whose text is a JSON object with
the same members. Both become the same record: the aggregate's id is the key, the payload the value, and ``pos`` the
first header. One counter of the transaction numbers them together, and no table's positions know of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.record.topic_names import TableName
from cdc.wire.format import AT, POS
from cdc.wire.jsontree import BLANKS, blank, expect, loads, value_at

ID = "id"
"""The header with an event's id, by which a reader knows one that it has seen."""
_REFUSED = re.compile(r"[^a-zA-Z0-9._-]")
_TOPIC_BYTES = 249
_MOST_KNOWN = 1000
"""Aggregate types whose topics are remembered."""
_PLAIN = re.compile(
    r'[ \t\n\r]*+"([^"\\\x00-\x1f]*+)"[ \t\n\r]*+:[ \t\n\r]*+"([^"\\\x00-\x1f]*+)"[ \t\n\r]*+(,?)'
).match
"""A member that is a text without escapes, as most are, and the comma behind it: read at once, it takes a fifth of the
time."""


class MalformedEvent(Exception):
    """What was written is no event. ``fault``: a clause that says why."""

    def __init__(self, fault: str) -> None:
        super().__init__(fault)
        self.fault = fault


class OutboxEvent(NamedTuple):
    """An event on its way. ``headers``: those behind ``pos``. ``value``: JSON, None where the payload was NULL."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]

    def placed(self, pos: bytes, at_us: int) -> list[tuple[str, bytes]]:
        """All headers of the event at a position. ``at_us``: the newest commit time so far."""
        return [(POS, pos), *self.headers, (AT, b"%d" % at_us)]


@dataclass(frozen=True, kw_only=True)
class OutboxRules:
    """How events are read: the outbox table and the prefix of messages (None without), the topic's name with
    ``{aggregatetype}`` in it, what the members of an event are called, and header -> member."""

    table: TableName | None = None
    prefix: str | None = None
    topic_name: str
    id: str = "id"
    aggregate_type: str = "aggregatetype"
    aggregate_id: str = "aggregateid"
    type: str = "type"
    payload: str = "payload"
    headers: Mapping[str, str] = field(default_factory=lambda: {"eventType": "type"})

    _topics: dict[bytes, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def topic(self, aggregate_type: str) -> str:
        """The topic of an aggregate's events. MalformedEvent where Kafka could not have it.

        >>> OutboxRules(topic_name="shop.outbox.{aggregatetype}").topic("Order")
        'shop.outbox.Order'
        """
        found = _REFUSED.sub("_", self.topic_name.replace("{aggregatetype}", aggregate_type))
        if len(found) > _TOPIC_BYTES:
            raise MalformedEvent(f"its {self.aggregate_type} makes a topic of over {_TOPIC_BYTES} characters")
        return found

    def of_row(
        self, columns: Sequence[str], values: Sequence[bytes | None], json_columns: frozenset[str]
    ) -> OutboxEvent:
        """The event of an inserted row, its values as text. ``json_columns``: those whose text Postgres has read as
        JSON already. MalformedEvent where it is none."""
        members = dict(zip(columns, values, strict=True))
        payload = members.get(self.payload)
        if payload is not None and self.payload not in json_columns:
            _require_json(payload, self.payload)
        return self._event(members)

    def of_message(self, content: bytes) -> OutboxEvent:
        """The event of a logical message. MalformedEvent where it is none."""
        return self._event(message_members(content, self.payload))

    def _event(self, members: Mapping[str, bytes | None]) -> OutboxEvent:
        try:
            kind, key, identity = members[self.aggregate_type], members[self.aggregate_id], members[self.id]
            value, _ = members[self.payload], members[self.type]
            chosen = [(header, members[name]) for header, name in self.headers.items()]
        except KeyError as lacking:
            raise MalformedEvent(f"it has no {lacking.args[0]}") from None
        if not (kind and key and identity):
            empty = self.aggregate_type if not kind else self.aggregate_id if not key else self.id
            raise MalformedEvent(f"its {empty} is empty")
        topic = self._topics.get(kind)
        if topic is None:
            if len(self._topics) >= _MOST_KNOWN:
                self._topics.clear()
            topic = self._topics[kind] = self.topic(kind.decode("utf-8", "replace"))
        headers = [(header, text) for header, text in chosen if text is not None]
        return OutboxEvent(topic, key, value, [(ID, identity), *headers])


def message_members(content: bytes, payload: str) -> dict[str, bytes | None]:
    """The members of a message's JSON object, null as None. Texts without their quotes, but for the one that is called
    ``payload``: that is JSON, and stays as it is written, as do numbers. MalformedEvent where it is no object.

    >>> message_members(b'{"id": "a", "n": 1.10, "payload": {"x": [1]}, "z": null}', "payload")
    {'id': b'a', 'n': b'1.10', 'payload': b'{"x": [1]}', 'z': None}
    """
    try:
        return _members(content.decode("utf-8"), payload)
    except ValueError:
        raise MalformedEvent("it is no JSON object") from None


def _members(text: str, payload: str) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    at = blank(text, expect(text, blank(text, 0), "{"))
    more = text[at : at + 1] != "}"
    while more:
        member = _PLAIN(text, at)
        if member is not None and member[1] != payload:
            name, value, comma = member.groups()
            found[name] = value.encode()
            at = member.end()
            more = comma == ","
        else:
            name, found_value, at = _member(text, at, payload)
            found[name] = found_value
            more = text[at : at + 1] == ","
            at += 1 if more else 0
    at = expect(text, at, "}")
    if text[at:].strip(BLANKS):
        raise ValueError("there is more behind the object")
    return found


def _member(text: str, at: int, payload: str) -> tuple[str, bytes | None, int]:
    """A member of any kind that begins at a character, and where the next mark stands."""
    name, at = value_at(text, blank(text, at), str)
    if not isinstance(name, str) or text[at - 1 : at] != '"':
        raise ValueError("a member's name is a text")
    begins = blank(text, expect(text, at, ":"))
    value, ends = value_at(text, begins, str)
    quoted = isinstance(value, str) and text[begins] == '"' and name != payload
    written = None if value is None else (value if quoted else text[begins:ends]).encode()
    return name, written, blank(text, ends)


def _require_json(payload: bytes, column: str) -> None:
    try:
        loads(payload.decode("utf-8"), str)
    except ValueError:
        raise MalformedEvent(f"its {column} is no JSON") from None
