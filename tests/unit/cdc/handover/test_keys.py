"""Whose turn it is, and when the two would write other keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.epochs import EpochsState
from cdc.errors import ConfigError
from cdc.handover.keys import key_problems, key_questions, shaping_options
from cdc.schema import Column, Encoding, Identity, TableSchema
from cdc.topic import TableName
from cdc.turn import WriterState, require_turn
from connectors.connect.locate import Finder
from connectors.connect.places import StreamedPlace, newest_place


def table(kind: str, *, encoding: Encoding = "readable", identity: Identity = Identity.DEFAULT) -> TableSchema:
    key = Column(name="k", attnum=1, type=kind, type_oid=1, kind=kind, nullable=False, key_position=1)
    return TableSchema(
        table=TableName("public", "t"),
        topic="t",
        version=1,
        oid=1,
        encoding=encoding,
        identity=identity,
        columns=(key,),
    )


@pytest.mark.parametrize("kind", ["int4", "int8", "text", "uuid", "numeric", "timestamptz", "enum", "bytea"])
def test_ordinary_keys_are_the_same_bytes(kind: str) -> None:
    assert key_problems([table(kind)], {"public.t": ["k"]}) == []


@pytest.mark.parametrize(("kind", "rule"), [("name", "D5"), ("float4", "D21"), ("float8", "D21"), ("other", "D2")])
def test_keys_that_are_written_otherwise_are_refused(kind: str, rule: str) -> None:
    (problem,) = key_problems([table(kind)], {"public.t": ["k"]})
    assert f"({rule})" in problem


def test_a_key_of_an_array_or_a_negative_scale_is_refused() -> None:
    for rule, more in (("D7", {"array": True}), ("D8", {"kind": "numeric", "typmod": (4 << 16 | 0x7FE) + 4})):
        shape = table("int4")
        column = replace(shape.columns[0], **more)
        (problem,) = key_problems([replace(shape, columns=(column,))], {"public.t": ["k"]})
        assert f"({rule})" in problem
    assert key_problems([table("hstore")], {"public.t": ["k"]}) != []


def test_a_readable_interval_is_the_same_bytes() -> None:
    assert key_problems([table("interval")], {"public.t": ["k"]}) == []
    assert len(key_problems([table("interval", encoding="debezium")], {"public.t": ["k"]})) == 1


def test_an_identity_index_beside_a_primary_key_is_refused() -> None:
    (problem,) = key_problems([table("int4", identity=Identity.INDEX)], {"public.t": ["id"]})
    assert "D9" in problem
    assert key_problems([table("int4", identity=Identity.INDEX)], {"public.t": ["k"]}) == []


def test_kinds_with_odd_values_ask_the_rows() -> None:
    assert [q.rule for kind in ("numeric", "date", "time", "int4") for q in key_questions([table(kind)])] == [
        "D4",
        "D6",
        "D19",
    ]


def test_options_that_shape_keys_and_topics_are_found() -> None:
    options = ["poll.interval.ms", "message.key.columns", "topic.naming.strategy", "topic.creation.default.partitions"]
    assert shaping_options(options) == ["message.key.columns", "topic.naming.strategy"]


def test_only_the_one_whose_turn_it_is_may_write() -> None:
    require_turn({}, "native")
    settled = WriterState(writer="debezium", step="done", lsn=0x10)
    held = {settled.key(): settled.to_json()}
    require_turn(held, "debezium")
    with pytest.raises(ConfigError, match="Debezium writes"):
        require_turn(held, "native")
    half = WriterState(writer="native", step="stopped", lsn=0x10)
    for writer in ("native", "debezium"):
        with pytest.raises(ConfigError, match="begun and not finished"):
            require_turn({half.key(): half.to_json()}, "native" if writer == "native" else "debezium")


def test_an_epoch_is_reached_from_the_ends_on() -> None:
    state = EpochsState().reaching(3, {"t": {0: 5}})
    assert (state.latest, state.epoch("t", 0, 4), state.epoch("t", 0, 5)) == (3, 1, 3)
    assert state.reaching(3, {"t": {0: 9}}) == state


def theirs(key: int, transaction: int, lsn: int, before: int, snapshot: str = "false") -> tuple[bytes, bytes]:
    source = f'"snapshot":"{snapshot}","sequence":"[\\"{before}\\",\\"{lsn}\\"]","txId":{transaction},"lsn":{lsn}'
    return b"%d" % key, f'{{"after":{{}},"source":{{{source}}},"op":"c"}}'.encode()


def test_a_partitions_place_counts_the_records_of_its_last_lsn() -> None:
    deleted = theirs(1, 9, 80, 60)
    records = [theirs(5, 8, 40, 30), deleted, (b"1", None), theirs(2, 9, 80, 60), theirs(7, 0, 99, 98, "true")]
    assert newest_place(records) == StreamedPlace(9, 80, 3, 60)
    assert newest_place([*records, (b"another", None)]) == StreamedPlace(9, 80, 3, 60), "of another row"
    assert newest_place(records[-1:]) is None
    # It may go on before what was read: then more has to be read.
    assert newest_place(records[1:3], whole=False) is None


def test_the_finder_returns_the_position_a_place_counts_to() -> None:
    finder = Finder({("t", 0): StreamedPlace(9, 80, 3, 60)})
    for seq, (lsn, key, tombstone) in enumerate(
        [(70, b"0", 0), (80, b"1", 0), (80, b"1", 1), (80, b"2", 0), (80, b"3", 0)]
    ):
        value = None if tombstone else b'{"source":{"txId":9,"lsn":%d,"xmin":null}}' % lsn
        finder.see(("t", 0), (0, key, value, [("pos", b"pos%d" % seq)]))
    assert finder.found == {"t": {0: "pos3"}}
