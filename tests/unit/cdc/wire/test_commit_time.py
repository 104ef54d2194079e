"""A record's commit time is its envelope's, whatever its row holds."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from cdc.wire.envelope import committed_ms

texts = st.text() | st.sampled_from(['"source":{"ts_ms":5}', '{"source":{"ts_ms":5}}', "\\", '"ts_ms":7,'])
rows = st.none() | st.dictionaries(
    st.sampled_from(["source", "ts_ms", "id"]),
    st.none() | texts | st.integers(-(2**63), 2**63) | st.dictionaries(texts, texts),
)


@given(rows, rows, texts, st.integers(0, 10**15), st.booleans())
def test_the_time_is_that_of_the_envelope(
    before: object, after: object, name: str, time_ms: int, embedded: bool
) -> None:
    source = {"version": "1", "connector": "postgresql", "name": name, "ts_ms": time_ms, "snapshot": "false"}
    envelope = {"before": before, "after": after, "source": source, "transaction": None, "op": "u", "ts_ms": 1}
    value = orjson.dumps({"schema": {"source": {"ts_ms": 3}}, "payload": envelope} if embedded else envelope)
    assert committed_ms(value) == time_ms


def test_what_is_no_envelope_has_none() -> None:
    assert [committed_ms(value) for value in (None, b"", b"{}", b'"source":{', b'{"id":1}')] == [None] * 5
