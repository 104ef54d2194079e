from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.clock import ManualClock
from cdc.record.position import Position
from cdc.record.schema import Column, Identity, TableSchema
from cdc.record.state import ChunkState
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS
from snapshot.first.row_writer import ChunkTask, RowWriter
from snapshot.first.slot_creation import ExportedCut

CUT = ExportedCut(snapshot="00000003-1", lsn=1000, tx_id=742, taken_us=1_700_000_000_000_000)


class MemoryRowLog:
    """:class:`snapshot.source.ports.RowLog` in memory."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int, bytes, bytes, dict[str, bytes]]] = []

    def produce(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        self.records.append((topic, partition, key, value or b"", dict(headers)))

    def rows(
        self,
        topic: str,
        partition_count: int,
        pairs: Iterable[tuple[bytes, bytes]],
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        self.records += [(topic, partition_count, key, value, dict(headers)) for key, value in pairs]

    def flush(self, timeout_s: float) -> None: ...

    def abort(self) -> None: ...

    def markers(self) -> list[tuple[str, str]]:
        """(table, marker) of every record, in order."""
        return [(value["table"], value["snapshot"]) for value in (orjson.loads(r[3])["source"] for r in self.records)]


def schema(table: str) -> TableSchema:
    columns = (
        Column(name="id", attnum=1, type="integer", type_oid=23, kind="int4", nullable=False, key_position=0),
        Column(name="note", attnum=2, type="text", type_oid=25, kind="text"),
        Column(name="worth", attnum=3, type="numeric", type_oid=1700, kind="numeric"),
    )
    return TableSchema(
        table=TableName("public", table),
        topic=f"shop.public.{table}",
        version=3,
        oid=1,
        encoding="debezium",
        identity=Identity.DEFAULT,
        columns=columns,
    )


def task(table: str, number: int = 1, **more: bool) -> ChunkTask:
    name = TableName("public", table)
    return ChunkTask(
        chunk=ChunkState(table=str(name), leaf=str(name), number=number, filenode=1, low=0, high=None),
        leaf=name,
        leaf_oid=1,
        schema=schema(table),
        partition_count=4,
        condition=None,
        cut=CUT,
        position=Position(1, 1000, 0),
        first_of_table=more.get("first_of_table", True),
        first_of_all=more.get("first_of_all", True),
    )


def writer(log: MemoryRowLog, *, exact: bool) -> RowWriter:
    return RowWriter(log, name="shop", database="app", clock=ManualClock(), exact=exact, masks=NO_MASKS)


def lines(*numbers: int) -> list[bytes]:
    return [b"%d\tnote %d\t1.5\n" % (number, number) for number in numbers]


def test_a_row_is_an_r_event_at_the_consistent_point() -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=False)
    rows.open(task("orders"))
    rows.write([rb"7	tab\t and \\ and \N	\N" + b"\n"])
    rows.close()
    [(topic, partitions, key, value, headers)] = log.records
    event = orjson.loads(value)
    assert (topic, partitions, key) == ("shop.public.orders", 4, b'{"id":7}')
    assert event["op"] == "r"
    assert event["before"] is None
    assert event["after"] == {"id": 7, "note": "tab\t and \\ and N", "worth": None}
    assert headers == {"pos": b"0000000100000000000003e800000000", "op": b"r", "ver": b"3"}
    source = event["source"]
    assert source["sequence"] == '[null,"1000"]'
    assert (source["lsn"], source["commit_lsn"], source["tx_seq"], source["epoch"]) == (1000, 1000, 0, 1)
    assert (source["txId"], source["ts_us"], source["snapshot"]) == (742, CUT.taken_us, "true")


def test_d24_several_workers_say_true_on_every_row() -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=False)
    rows.open(task("orders"))
    rows.write(lines(1, 2, 3))
    rows.close()
    rows.finish()
    assert [marker for _, marker in log.markers()] == ["true"] * 3


def test_the_figures_of_a_chunk() -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=False)
    rows.open(task("orders", number=5))
    rows.write(lines(1, 2))
    assert rows.row_count == 2
    rows.close()
    [chunk] = rows.settled()
    assert (chunk.number, chunk.rows) == (5, 2)
    assert chunk.size_bytes == sum(len(r[2]) + len(r[3]) for r in log.records)
    assert chunk.started_ns == chunk.finished_ns == ManualClock().now_ns()
    assert rows.settled() == []


def test_a_chunk_is_not_settled_while_its_last_row_is_held_back() -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=True)
    rows.open(task("orders", number=1))
    rows.write(lines(1, 2))
    assert rows.row_count == 2
    rows.close()
    assert rows.settled() == [], "row 2 may still be the last of all"
    rows.open(task("orders", number=2))
    rows.close()
    assert [chunk.number for chunk in rows.settled()] == [2], "an empty chunk settles nothing but itself"
    rows.open(task("items", number=1))
    rows.write(lines(1))
    rows.close()
    assert [(c.table, c.number, c.rows) for c in rows.settled()] == [("public.orders", 1, 2)]
    rows.finish()
    assert [(c.table, c.rows) for c in rows.settled()] == [("public.items", 1)]
    assert log.markers() == [("orders", "first"), ("orders", "last_in_data_collection"), ("items", "last")]


def test_a_dropped_chunk_takes_its_held_row_along() -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=True)
    rows.open(task("orders"))
    rows.write(lines(1))
    rows.drop()
    rows.finish()
    assert log.records == []
    assert rows.settled() == []


def test_a_run_that_goes_on_does_not_begin_again() -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=True)
    rows.open(task("orders", first_of_all=False, first_of_table=False))
    rows.write(lines(1, 2))
    rows.close()
    rows.open(task("items", first_of_all=False))
    rows.write(lines(1, 2))
    rows.close()
    rows.finish()
    assert [marker for _, marker in log.markers()] == [
        "true",
        "last_in_data_collection",
        "first_in_data_collection",
        "last",
    ]


Blocks = list[list[int]]
"""Chunks of a table, each as the sizes of its blocks."""


@given(st.lists(st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=1, max_size=3), min_size=1, max_size=4))
def test_d24_one_worker_marks_first_and_last_exactly(tables: list[Blocks]) -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=True)
    settled: list[ChunkState] = []
    totals = [sum(sum(chunk) for chunk in chunks) for chunks in tables]
    for place, chunks in enumerate(tables):
        for number, blocks in enumerate(chunks):
            rows.open(task(f"t{place}", number))
            for size in blocks:
                rows.write(lines(*range(size)))
            rows.close()
            settled += rows.settled()
    rows.finish()
    settled += rows.settled()

    expected = []
    whole, seen = sum(totals), 0
    for place, total in enumerate(totals):
        for row in range(total):
            seen += 1
            if seen == whole:
                expected.append((f"t{place}", "last"))
            elif row == total - 1:
                expected.append((f"t{place}", "last_in_data_collection"))
            elif seen == 1:
                expected.append((f"t{place}", "first"))
            else:
                expected.append((f"t{place}", "first_in_data_collection" if row == 0 else "true"))
    assert log.markers() == expected
    assert sum(chunk.rows for chunk in settled) == whole
    assert len(settled) == sum(len(chunks) for chunks in tables)


def test_d4_numbers_that_the_encoding_cannot_express_are_counted() -> None:
    log = MemoryRowLog()
    rows = writer(log, exact=False)
    rows.open(task("orders"))
    rows.write([b"1\tx\tNaN\n", b"2\tx\tInfinity\n"])
    rows.close()
    assert rows.lost() == {"public.orders.worth": 2}
    assert rows.lost() == {}
    assert [orjson.loads(r[3])["after"]["worth"] for r in log.records] == [None, None]
