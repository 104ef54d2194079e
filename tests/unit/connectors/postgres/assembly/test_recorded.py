"""Streams recorded from real servers: decoded as reviewed, assembled without a word of complaint, cut anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import DecodeError
from cdc.record.schema import Identity, TableSchema
from cdc.record.topic_names import TableName
from connectors.postgres.assembly.pending_records import Undecided
from connectors.postgres.protocol.messages import Relation
from connectors.postgres.protocol.pgoutput import decode
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Read, Shapes, Stream, store

FOLDER = Path("tests/fixtures/pgoutput")
RECORDED = sorted((Path(__file__).parents[5] / FOLDER).glob("*.hex"))
KINDS = {23: "int4", 25: "text", 1184: "timestamptz"}
every_version = pytest.mark.parametrize("file", RECORDED, ids=lambda path: f"postgres{path.stem}")


def messages(file: Path) -> list[bytes]:
    return [bytes.fromhex(line) for line in file.read_text(encoding="ascii").splitlines()]


EVERY = [message for file in RECORDED for message in messages(file)]


def test_there_are_recordings_of_old_and_new_servers() -> None:
    assert {file.stem for file in RECORDED} >= {"15", "18"}


@every_version
def test_recorded_bytes_are_decoded_as_reviewed(file: Path) -> None:
    reviewed = file.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    assert [repr(decode(message)) for message in messages(file)] == reviewed


@every_version
def test_every_kind_of_message_is_recorded(file: Path) -> None:
    assert {chr(message[0]) for message in messages(file)} == set("BCRYIUDTMO")


class Announced(Shapes):
    """Every table of schema ``r``, its key from the announcement; partitions are not captured themselves."""

    def schema(self, relation: Relation, xid: int, timeout_s: float) -> TableSchema | Undecided | None:
        if relation.table.startswith("tree_"):
            return None
        flagged = [c.name for c in relation.columns if c.in_key]
        key = ["id"] if relation.identity == Identity.FULL else flagged
        columns = tuple(
            w.column(
                c.name, KINDS.get(c.type_oid, "other"), key.index(c.name) if c.name in key else None, typmod=c.typmod
            )
            for c in relation.columns
        )
        return TableSchema(
            table=TableName(relation.schema, relation.table), topic=f"shop.r.{relation.table}", version=len(columns),
            oid=relation.relation_oid, encoding="readable", identity=relation.identity, columns=columns,
        )  # fmt: skip


def assembled(stream: list[bytes]) -> list[Read]:
    found = Stream(shapes=Announced())
    return found.feed([w.frame(message, at) for at, message in enumerate(stream)])


@every_version
def test_a_recorded_stream_gives_the_rows_that_are_left(file: Path) -> None:
    records = assembled(messages(file))
    by_topic: dict[int, list[Read]] = {}
    for record in records:
        by_topic.setdefault(record.lane, []).append(record)
    rows = [store(found) for found in by_topic.values()]
    by_default, by_full, by_index, tree = rows
    assert by_default == {'{"id": 30}': {"id": 30, "note": "from elsewhere", "doc": ""}}
    assert by_full == {'{"id": 2}': {"id": 2, "m": "sad", "p": "2.00", "added": "2026-11-20T10:11:12.345Z"}}
    assert (by_index, tree) == ({}, {})
    assert [r.op for r in by_topic[2]] == ["c", "d", "d", "c", "d", "d", "t"]
    assert [r.value["source"]["origin"] for r in by_topic[0] if r.value][-1] == "elsewhere"


@given(st.sampled_from(EVERY), st.data())
def test_recorded_bytes_cut_short_are_refused(message: bytes, data: st.DataObject) -> None:
    with pytest.raises(DecodeError):
        decode(message[: data.draw(st.integers(0, len(message) - 1))])


@given(st.sampled_from(RECORDED), st.data())
def test_a_changed_stream_gives_records_or_a_decode_error(file: Path, data: st.DataObject) -> None:
    stream = messages(file)
    at = data.draw(st.integers(0, len(stream) - 1))
    changed = bytearray(stream[at])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    stream[at] = bytes(changed)
    try:
        records = assembled(stream)
    except DecodeError:
        return
    positions = [r.headers["pos"] for r in records]
    assert all(len(position) == 32 for position in positions)
