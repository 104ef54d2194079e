"""Documents of the state topic: the keys that running pipelines have them under, and what a silent one means."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.process.errors import DamagedError
from cdc.record.state import (
    ChunkState,
    CommandState,
    Document,
    FormState,
    PartitionsState,
    ReadingState,
    RequestState,
    SlotIntent,
    SnapshotState,
    SnapshotTableState,
    TopicsState,
)

CHUNK = {"table": "public.t", "leaf": "public.t1", "number": 3, "filenode": 7, "low": 0, "high": None}
TABLE = {
    "table": "public.t", "schema": "public", "name": "t", "topic": "shop.public.t", "oid": 7, "version": 1,
    "generation": 1, "chunks": 4,
}  # fmt: skip
REQUEST = {"id": "snapshot:public.t", "table": "public.t", "after_lsn": 0, "reason": "why"}
READING = {"id": "snapshot:public.t", "table": "public.t", "serial": 5, "epoch": 1}
FORM = {"table": "public.t", "oid": 7, "columns": [], "leaves": [], "publication": ""}
SNAPSHOT = {"epoch": 1, "state": "running", "consistent_point": 8, "last_cut_lsn": 8}
INTENT = {"epoch": 1, "system_identifier": "1", "database": "app", "slot": "s"}


def read(kind: type[Document], members: dict[str, Any]) -> Document:
    return kind.from_json(orjson.dumps({"format": 1, **members}))


@pytest.mark.parametrize(
    ("kind", "members", "key"),
    [
        (TopicsState, {"cluster_id": "c"}, {"what": "topics"}),
        (SlotIntent, INTENT, {"what": "slot_intent"}),
        (SnapshotState, SNAPSHOT, {"what": "snapshot"}),
        (SnapshotTableState, TABLE, {"what": "snapshot_table", "table": "public.t"}),
        (ChunkState, CHUNK, {"what": "chunk", "table": "public.t", "leaf": "public.t1", "number": 3}),
        (RequestState, REQUEST, {"what": "request", "id": "snapshot:public.t"}),
        (CommandState, {"id": "i", "serial": 1, "state": "paused"}, {"what": "wish", "id": "i"}),
        (ReadingState, READING, {"what": "reread", "id": "snapshot:public.t"}),
        (FormState, FORM, {"what": "form", "table": "public.t"}),
        (PartitionsState, {"table": "public.t", "links": {}}, {"what": "partitions", "table": "public.t"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_h113_a_document_stands_under_its_key(
    kind: type[Document], members: dict[str, Any], key: dict[str, Any]
) -> None:
    """Under another one a running pipeline would not find its own again."""
    assert orjson.loads(read(kind, members).key()) == key


@pytest.mark.parametrize(
    ("kind", "members", "silent"),
    [
        (TopicsState, {"cluster_id": "c"}, {"encoding": "readable", "topics": {}, "tables": {}}),
        (SlotIntent, INTENT, {"consistent_point": 0}),
        (SnapshotState, SNAPSHOT, {"tables": [], "rows": 0, "size_bytes": 0}),
        (SnapshotTableState, TABLE, {"gone": False, "publication": "", "entries": "", "leaves": []}),
        (
            ChunkState, CHUNK,
            {"generation": 1, "state": "planned", "rows": 0, "size_bytes": 0, "started_ns": 0, "finished_ns": 0},
        ),
        (RequestState, REQUEST, {"state": "asked", "serial": 0, "where": None, "first": False, "by_hand": False}),
        (
            ReadingState, READING,
            {"state": "waiting", "oid": 0, "version": 0, "rows": 0, "left_out": 0, "differing": None, "share": 0.0,
             "first": False, "started_ns": 0, "finished_ns": 0},
        ),
        (FormState, FORM, {"version": 0, "entries": "", "born": {}, "types": {}, "links": {}}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)  # fmt: skip
def test_h113_what_a_document_does_not_say_is_not_known(
    kind: type[Document], members: dict[str, Any], silent: dict[str, Any]
) -> None:
    found = read(kind, members)
    assert {name: getattr(found, name) for name in silent} == silent


@pytest.mark.parametrize(
    ("part", "whole"),
    [({}, True), ({"where": "id = 1"}, False), ({"keys": [["1"]]}, False), ({"leaves": ["a.b"]}, False)],
)
def test_a_request_for_a_part_is_not_one_for_the_table(part: dict[str, Any], whole: bool) -> None:
    """A sweep mark ends the reading of a whole table: of a part it would empty the rest."""
    found = read(RequestState, REQUEST | part)
    assert isinstance(found, RequestState)
    assert found.whole is whole


@pytest.mark.parametrize("state", ["done", "", "Asked"])
def test_h113_a_state_that_no_command_writes_is_damage(state: str) -> None:
    for kind, members in ((CommandState, {"id": "i", "serial": 1}), (RequestState, REQUEST)):
        with pytest.raises(DamagedError):
            read(kind, {**members, "state": state})


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 5}, {"table": None}, {"reason": 1}, {"state": 1}, {"where": 5}, {"after_lsn": "0/8"}, {"serial": "1"},
        {"keys": [[1]]}, {"keys": [["1"], 2]}, {"keys": [["1"], [None]]}, {"leaves": [1]}, {"leaves": "a.b"},
    ],
    ids=str,
)  # fmt: skip
def test_h113_a_request_with_members_of_other_types_is_refused(wrong: dict[str, Any]) -> None:
    """The topic may be written by others, and what is asked there is carried out."""
    with pytest.raises(ValueError, match=r"^a request has members of other types than it should$"):
        RequestState(**{**REQUEST, **wrong})
    with pytest.raises(DamagedError):
        read(RequestState, {**REQUEST, **wrong})
