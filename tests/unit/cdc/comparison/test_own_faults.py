"""What Debezium's records cannot be compared with: our positions and headers, and a TRUNCATE that only we wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from cdc.comparison.commit_window import CommitWindow
from cdc.comparison.compared_record import ComparedRecord
from cdc.comparison.lossless import parse
from cdc.comparison.own_faults import own_faults
from cdc.comparison.run import Trial
from cdc.comparison.source_rows import RowsAtCut
from cdc.comparison.verdict import judge
from cdc.cuts import Cut, RepairRow, VerifiedTable
from cdc.position import Position
from tests.unit.cdc.comparison.test_rules import facts
from tests.unit.cdc.comparison.world import World

HEADERS = ("pos", "op", "ver")


def ours(
    op: str | None,
    lsn: int,
    seq: int = 1,
    *,
    key: str = '{"id":1}',
    partition: int = 0,
    without: str = "",
    pos: str = "",
) -> ComparedRecord:
    position = Position(1, lsn, seq)
    after = "null" if op in ("d", "t") else '{"id":1}'
    body = f'{{"after":{after},"source":{{"txId":{lsn},"lsn":{lsn}}},"op":"{op}"}}' if op is not None else None
    texts = (pos or position.text(), op or "d", "1")
    return ComparedRecord(
        table="public.t", key=parse(key), value=None if body is None else parse(body), place=(partition, lsn),
        headers=tuple(pair for pair in zip(HEADERS, texts, strict=True) if pair[0] != without),
    )  # fmt: skip


TRUNCATE = '{"__truncate":"public.t"}'


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ([ours("c", 10), ours("u", 20), ours("d", 30), ours(None, 30, 2)], []),
        ([ours("c", 10), ours("c", 10, key='{"id":2}')], []),
        ([ours("t", 10, key=TRUNCATE), ours("t", 10, key=TRUNCATE, partition=1)], []),
        ([ours("c", 20), ours("u", 20)], ["is not above"]),
        ([ours("c", 20), ours("u", 10)], ["is not above"]),
        ([ours("c", 20), ours("u", 10), ours("u", 15)], ["is not above", "is not above"]),
        ([ours("d", 30), ours(None, 30)], ["is not above"]),
        ([ours("t", 20, key=TRUNCATE), ours("c", 10)], ["is not above"]),
        ([ours("t", 20, key=TRUNCATE), ours("c", 10, partition=1)], []),
        ([ours("c", 10, pos="x")], ["is no position"]),
        *(([ours("c", 10, without=name)], [f"header {name}: Debezium - | ours (absent)"]) for name in HEADERS),
    ],
)
def test_h180_our_positions_rise_and_our_headers_are_there(topic: list[ComparedRecord], words: list[str]) -> None:
    found = [str(fault) for fault in own_faults("readable", topic, {})]
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))
    assert judge("public.t", "readable", topic, topic, {}, topic=topic).unexplained == len(words)


def test_h180_a_position_outside_of_the_window_is_a_fault() -> None:
    """Its records are compared with nothing, on both sides."""
    world = World(load=9)
    found = world.written.records

    def moved(record: ComparedRecord) -> ComparedRecord:
        headers = (("pos", Position(1, 1, 1).text()), *record.headers[1:])
        return ComparedRecord(
            table=record.table, key=record.key, value=record.value, headers=headers, place=record.place
        )

    world.written.records = lambda topic, table: [  # type: ignore[method-assign]
        moved(record) if "native" in topic and record.place[1] == 3 else record for record in found(topic, table)
    ]
    comparison = world.comparing().run(Trial(for_s=3))
    assert comparison.unexplained == 1
    assert "header pos is not above" in comparison.verdicts[0].words[0]


def test_h180_a_record_without_a_position_is_compared() -> None:
    record = ours("c", 10, pos="x")
    assert CommitWindow(begin=1, end=20, rows=False).cut([], [record]) == ([], [record])


class Left:
    """A source that has a row of each key that is asked for, or of none."""

    def __init__(self, row: bytes | None) -> None:
        self._row = row

    def tables(self) -> Mapping[str, VerifiedTable]:
        return {"public.t": VerifiedTable(shape=facts().schemas[0], stored=facts().schemas[0], rows=1)}

    def records_of(self, table: VerifiedTable, keys: Sequence[str]) -> Iterator[dict[str, RepairRow]]:
        yield {key: RepairRow(b'{"id":1}', self._row) for key in keys if self._row is not None}


@pytest.mark.parametrize(
    ("row", "before", "unexplained", "undecided"),
    [(None, "c", 0, 0), (b'{"id":1}', "c", 1, 0), (b'{"id":1}', None, 0, 1)],
    ids=["the source is empty", "the row is there still", "no row was known"],
)
def test_h180_a_truncate_of_ours_alone_left_no_row(
    row: bytes | None, before: str | None, unexplained: int, undecided: int
) -> None:
    """It would empty every store, and Debezium has none to compare it with."""
    change = [ours(before, 10)] if before is not None else []
    topic = [*change, ours("t", 20, key=TRUNCATE)]
    witness = RowsAtCut(Left(row), Cut(100, 100, certain=True)).of("public.t", topic)  # type: ignore[arg-type]
    found = judge("public.t", "readable", change, topic, {"public.t": facts()}, witness, topic)
    assert (found.unexplained, found.undecided) == (unexplained, undecided)
    assert found.by_rule["D23"] == 1 - unexplained


def test_h180_a_row_that_changed_behind_the_cut_decides_nothing() -> None:
    record = ours("c", 150)
    for settled, asked in ((151, True), (150, False)):
        witness = RowsAtCut(Left(b'{"id":1}'), Cut(settled, settled, certain=True)).of("public.t", [record])  # type: ignore[arg-type]
        assert witness is not None
        assert bool(witness.rows([record])) is asked
