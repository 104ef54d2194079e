"""The proof that rows of a table that joined were read, and the notes of those that were not."""

from __future__ import annotations

import pytest

from cdc.process.errors import DamagedError
from cdc.wire.debezium.reading import is_read_row
from connectors.debezium.snapshots import UnreadState


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (b'{"op":"r","source":{"table":"b"},"after":{"id":1}}', True),
        (b'{"schema":{},"payload":{"op":"r","source":{"table":"b"}}}', True),
        (b'{"id":1,"__op":"r","__table":"b"}', True),
        (b'{"op":"c","source":{"table":"b"},"after":{"note":"incremental"}}', False),
        (b'{"op":"r","payload":{"op":"r"}}', False),
        (b'{"id":1,"op":"r"}', False),
        (b"\x00\x00\x00\x00\x07\x02\x0cshop\x16incremental", True),
        (b"\x00\x00\x00\x00\x07\x02\x0cshop", False),
        (b"[1]", False),
        (b"null", False),
        (None, False),
    ],
)
def test_h260_a_read_row_is_known_by_its_operation(value: bytes | None, read: bool) -> None:
    assert is_read_row(value) is read


def test_h260_the_note_comes_back_and_is_checked() -> None:
    state = UnreadState(asked_ms={"public.b": 5}, ends={"public.b": {"0": 7}})
    assert UnreadState.from_json(state.to_json()) == state
    with pytest.raises(DamagedError):
        UnreadState.from_json(b'{"format":1,"asked_ms":{"public.b":"soon"},"ends":{}}')
