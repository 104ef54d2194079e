"""Records of waiting tables on disk: what is read is what was written, and files go as they are read (H122)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc.record.ports import Record, Withheld
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.assembly.pending_records import Entry, Pending
from connectors.postgres.assembly.spill_files import Spilled
from connectors.postgres.encoding.encoder import compile_table
from connectors.postgres.protocol.messages import UNCHANGED
from tests.unit.connectors.postgres import written as w

ENCODERS = [
    compile_table(
        w.table(w.column("id", "int4", 0), w.column(name, "text")), name="shop", database="app", masks=NO_MASKS
    )
    for name in ("a", "b")
]
TEXTS = st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), TEXTS), max_size=4)
VALUES = st.none() | TEXTS | st.integers(0, 1 << 40).map(Withheld)
RECORDS: st.SearchStrategy[Record] = st.tuples(st.integers(0, 1 << 20), TEXTS, VALUES, HEADERS)
LACKING = st.builds(
    Pending,
    lane=st.integers(0, 99),
    lanes=st.tuples(st.integers(0, 9), st.integers(9, 99)).map(lambda ends: range(*ends)),
    xid=st.integers(0, (1 << 64) - 1),
    key=TEXTS,
    headers=HEADERS,
    encoder=st.sampled_from(ENCODERS),
    before=TEXTS,
    values=st.lists(TEXTS | st.none() | st.just(UNCHANGED), max_size=5),
    tail=TEXTS,
    gone=st.lists(RECORDS, max_size=2).map(tuple),
)


def plain(entry: Entry) -> object:
    """Comparable: a withheld value has no bytes, only a length."""
    if isinstance(entry, Pending):
        return entry
    lane, key, value, headers = entry
    return lane, key, ("withheld", value.size_bytes) if isinstance(value, Withheld) else value, headers


@given(steps=st.lists(RECORDS | LACKING | st.none(), max_size=30), segment_bytes=st.integers(1, 400))
def test_h122_entries_come_back_in_order_and_as_they_were(steps: list[Entry | None], segment_bytes: int) -> None:
    spilled, kept = Spilled(None, segment_bytes), list[Entry]()
    for step in steps:
        if step is not None:
            kept.append(step)
            spilled.append(step)
        elif kept:
            assert plain(spilled.pop()) == plain(kept.pop(0))
        assert len(spilled) == len(kept)
        assert bool(spilled.size_bytes) == bool(kept)
    while kept:
        assert plain(spilled.pop()) == plain(kept.pop(0))
    spilled.close()


def test_h122_the_files_do_not_grow_while_they_are_read_out() -> None:
    record: Record = (0, b"k" * 50, b"v" * 50, [("pos", b"0" * 32)])
    spilled = Spilled(None, segment_bytes=1000)
    for _ in range(10):
        spilled.append(record)
    for _ in range(1000):
        spilled.append(record)
        spilled.pop()
        assert spilled.file_bytes <= spilled.size_bytes + 2000
    spilled.close()
