"""Messages of the outbox that are taken undecoded become what decoded ones become."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from cdc.capture.outbox import OutboxRules
from cdc.record.ports import Record
from cdc.record.topic_names import partition_of
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.assembler import Assembler, AssemblerPorts
from connectors.postgres.assembly.outbox_events import OutboxPorts, RefusedEvent
from connectors.postgres.protocol.oversized_fields import Abridged
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import PIPELINE, Rows, Shapes

ORDERS = w.table()
OUTBOX = w.table(
    *(w.column(name, "text") for name in ("id", "aggregatetype", "aggregateid", "type", "payload")),
    oid=16400,
    name="outbox",
)
VALUES = st.none() | st.sampled_from([b"", b"a", b"Order", b"1", b'{"a": [1.10]}', b"{", b"\xff", b"x" * 80])
TEXTS = st.sampled_from(["outbox", "foreign", "outbox2", "None", ""])
MEMBERS = st.dictionaries(
    st.sampled_from(["id", "aggregatetype", "aggregateid", "type", "payload", "x"]),
    st.none() | st.integers(0, 9) | st.sampled_from(["Order", "a", "", 'a"b', "\u20ac"]) | st.lists(st.integers(0, 9)),
)
MESSAGES = st.one_of(
    st.builds(lambda values: w.insert(*values, oid=OUTBOX.oid), st.lists(VALUES, min_size=5, max_size=5)),
    st.builds(lambda key: w.delete(key=[key, None, None, None, None], oid=OUTBOX.oid), VALUES),
    st.builds(lambda values: w.update(values, oid=OUTBOX.oid), st.lists(VALUES, min_size=5, max_size=5)),
    st.builds(
        lambda prefix, members, transactional: w.logical(
            prefix, json.dumps(members).encode(), transactional=transactional
        ),
        TEXTS,
        MEMBERS,
        st.booleans(),
    ),
    st.builds(w.logical, TEXTS, VALUES.map(lambda value: value or b"")),
    st.builds(lambda number: w.insert(b"%d" % number, b"note"), st.integers(1, 9)),
)
EVENT = {"id": "1", "aggregatetype": "Order", "aggregateid": "7", "type": "Paid", "payload": {"n": 1.5}}


def captured(frames: Sequence[bytes], prefix: str | None = "outbox") -> tuple[list[Record], list[RefusedEvent]]:
    refused: list[RefusedEvent] = []
    rules = OutboxRules(table=OUTBOX.table, prefix=prefix, topic_name="shop.outbox.{aggregatetype}")
    assembler = Assembler(
        PIPELINE,
        AssemblerPorts(
            schemas=Shapes(ORDERS),
            lanes=lambda topic: (0, 4),
            partition=partition_of,
            reselect=Rows(),
            overflow=lambda records: None,
            masks=NO_MASKS,
            outbox=OutboxPorts(rules=rules, lanes=lambda topic: (4, 4), refuse=refused.extend, limit_bytes=2048),
        ),
    )
    announced = [w.frame(w.begin(8)), w.frame(w.relation(ORDERS)), w.frame(w.relation(OUTBOX)), w.frame(w.commit(8))]
    assembler.feed(announced, 1)
    found = assembler.feed(frames, 1)
    return found.records, refused


@given(st.lists(MESSAGES, max_size=8), st.sampled_from(["outbox", None]))
@example(
    [w.logical("outbox", json.dumps(EVENT).encode()), w.insert(b"1", b"Order", b"7", b"Paid", b"{}", oid=16400)],
    "outbox",
)
@example([w.logical("None", json.dumps(EVENT).encode())], None)
def test_an_event_is_the_same_decoded_or_not(messages: list[bytes], prefix: str | None) -> None:
    frames = [w.frame(one, 90) for one in (w.begin(96), *messages, w.commit(96))]
    # A frame that was abridged takes the long way.
    assert captured(frames, prefix) == captured([Abridged(frame) for frame in frames], prefix)


def test_an_event_leaves_the_position_of_a_row_as_it_was() -> None:
    event = w.logical("outbox", json.dumps(EVENT).encode())
    inserted = w.insert(b"1", b"Order", b"7", b"Paid", b"{}", oid=OUTBOX.oid)
    frames = [w.frame(one, 90) for one in (w.begin(96), event, w.insert(b"1", b"note"), event, w.commit(96))]
    assert numbers(frames) == [1, 1, 2]
    frames = [w.frame(one, 90) for one in (w.begin(96), inserted, w.insert(b"1", b"note"), w.commit(96))]
    assert numbers(frames) == [1, 2]


def numbers(frames: Sequence[bytes]) -> list[int]:
    """Of each record in its transaction."""
    return [int(headers[0][1][-8:], 16) for _, _, _, headers in captured(frames)[0]]
