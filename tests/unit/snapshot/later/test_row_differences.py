"""What a topic says of a reading: how many rows the log had otherwise, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import Position
from cdc.wire.records import LoggedRecord, sweep_key, sweep_value, truncate_key
from snapshot.later.chunk_queue import MOST_BYTES, NotComparable, RowDifferences
from snapshot.later.table_reading import Differing

COLUMNS = ("id", "v")


def at(lsn: int) -> str:
    return Position(1, lsn, 1).text()


def value(row: str | None, tail: str = "") -> bytes:
    after = "null" if row is None else f'{{"v":"{row}"}}'
    return f'{{"before":null,"after":{after},"source":{{"version":"1{tail}"}}}}'.encode()


@dataclass
class Written:
    """A topic of one partition."""

    records: list[LoggedRecord] = field(default_factory=list)
    lsn: int = 0

    def put(self, key: int | str, op: str, row: str | None = None, lsn: int | None = None) -> None:
        self.lsn += 8
        pos = at(self.lsn if lsn is None else lsn)
        name = key if isinstance(key, str) else f'{{"id":{key}}}'
        self.records.append(LoggedRecord(0, name.encode(), value(row, str(self.lsn)), pos.encode(), op.encode()))

    def read(self, rows: Iterable[tuple[int, str]]) -> str:
        """A whole reading, at its end swept. Its floor."""
        self.lsn += 8
        floor = at(self.lsn)
        for key, row in rows:
            self.put(key, "r", row, lsn=self.lsn)
        self.mark(floor)
        return floor

    def mark(self, floor: str) -> None:
        self.lsn += 8
        swept = sweep_value(value(None), floor, 1)
        self.records.append(LoggedRecord(0, sweep_key("public.t"), swept, at(self.lsn).encode(), b"t"))


def differing(topic: Written, floor: str) -> int:
    return RowDifferences(floor, COLUMNS).take(topic.records)


CHANGES = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", None]), st.booleans()), max_size=20)


@given(CHANGES, CHANGES, st.randoms(use_true_random=False))
def test_h96_the_count_is_that_of_keys_the_log_had_otherwise(
    before: list[tuple[int, str | None, bool]], after: list[tuple[int, str | None, bool]], any_order: object
) -> None:
    topic = Written()
    table: dict[int, str | None] = {}
    logged: dict[int, str | None] = {}
    for key, row, sent in before:
        for rows in (table, *([logged] if sent else [])):
            rows[key] = row
        if sent:
            topic.put(key, "d" if row is None else "u", row)
            topic.records.append(LoggedRecord(0, f'{{"id":{key}}}'.encode(), None, at(topic.lsn).encode(), b"d"))
    alive = [(key, row) for key, row in table.items() if row is not None]
    any_order.shuffle(alive)  # type: ignore[attr-defined]
    floor = topic.read(alive)
    for key, row, _ in after:
        topic.put(key, "d" if row is None else "u", row)
    assert differing(topic, floor) == sum(table[key] != logged.get(key) for key in table)


def test_h96_rows_below_an_older_floor_count_as_missing() -> None:
    topic = Written()
    topic.put(1, "c", "a")
    topic.put(truncate_key("public.t").decode(), "t")
    topic.put(2, "c", "a")
    assert differing(topic, topic.read([(1, "a"), (2, "a")])) == 1
    assert differing(topic, topic.read([(1, "a")])) == 1, "the second reading alone"
    topic.mark(at(topic.lsn))
    assert differing(topic, topic.read([])) == 0, "the mark of an earlier reading took the last row"


def test_h96_a_reading_begun_anew_counts_from_its_first_row() -> None:
    topic = Written()
    for key in (1, 2, 3):
        topic.put(key, "c", "a")
    topic.put(1, "r", "b")
    topic.put(3, "r", "a")
    begun = at(topic.lsn - 8)
    # The table was rewritten meanwhile: all of it is read again, above another floor.
    floor = topic.read([(1, "b"), (3, "a")])
    assert RowDifferences(floor, COLUMNS, begun).take(topic.records) == 2, "1 was otherwise, and 2 is gone"


def test_h96_a_reading_behind_another_counts_its_own_rows() -> None:
    """An idle database gives both the same floor."""
    topic = Written()
    for key in (1, 2):
        topic.put(key, "c", "a")
    start_ns, seen = 1_795_524_691_500_405_838, len(topic.records)
    floor = topic.read([(1, "b")])
    first = [made_at(record, start_ns + 5) for record in topic.records[seen:]]
    second = [made_at(record, start_ns + 15) for record in topic.records[seen:]]
    records = [*topic.records[:seen], *first, *second]
    assert RowDifferences(floor, COLUMNS, floor, start_ns).take(records[: seen + len(first)]) == 2
    assert RowDifferences(floor, COLUMNS, floor, start_ns + 10).take(records) == 0


def made_at(record: LoggedRecord, time_ns: int) -> LoggedRecord:
    assert record.value is not None
    return record._replace(value=record.value.removesuffix(b"}") + b',"ts_ns":%d}' % time_ns)


def test_h96_a_record_that_was_sent_again_changes_nothing() -> None:
    topic = Written()
    topic.put(1, "c", "a", lsn=1000)
    topic.put(1, "u", "b", lsn=2000)
    topic.put(1, "c", "a", lsn=1000)
    topic.lsn = 3000
    assert differing(topic, topic.read([(1, "b")])) == 0


@pytest.mark.parametrize(
    "record",
    [
        LoggedRecord(0, b"1", b"{}", None, None),
        LoggedRecord(0, None, b"{}", at(8).encode(), b"u"),
        LoggedRecord(0, b"1", b" " * (MOST_BYTES + 1), at(8).encode(), b"u"),
    ],
)
def test_h96_what_is_not_known_is_not_called_equal(record: LoggedRecord) -> None:
    with pytest.raises(NotComparable):
        RowDifferences(at(8), COLUMNS).take([record])
    with pytest.raises(NotComparable, match="nothing of it was written"):
        RowDifferences("", COLUMNS)
    assert Differing(None, "too large").words == "not compared with the log: too large"
    assert (Differing().words, Differing(0).words) == ("", "no row differed from the log")
