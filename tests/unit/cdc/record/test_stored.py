"""Documents that outlive the program which wrote them: one of each kind, those of another format, damaged ones."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import CdcError, DamagedError, Exit, FormatError
from cdc.record.documents import FORMAT
from cdc.record.progress import Progress, Watermark
from cdc.record.schema import TableSchema
from cdc.record.state import Document, FormState, RequestState, SlotState, TopicsState, find_all
from cdc.views.known_views import KnownView, ViewIdentity
from cdc.views.state_reach import Reached
from cdc.views.view_ports import read_answer
from cdc.wire.dead_letter import DeadLetter, RecordHeaders
from sinks.contract.store_notes import TableFloor

ROOT = Path(__file__).parents[4]
SAMPLES = json.loads((ROOT / "tests" / "fixtures" / "stored" / "documents.json").read_text(encoding="utf-8"))
"""Documents of a pipeline, and dead letters of it."""


def document_modules() -> Iterator[str]:
    """The modules with a kind of document of the state topic: a kind is known once its module is imported."""
    for folder in ("cdc", "connectors", "snapshot", "sinks", "spark"):
        for path in (ROOT / folder).rglob("*.py"):
            if _KIND.search(path.read_text(encoding="utf-8")):
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


_KIND = re.compile(r"^ *class \w+\([^)]*\bDocument\b", re.MULTILINE)
for module in document_modules():
    importlib.import_module(module)
KINDS: dict[str, type[Document]] = {kind.WHAT: kind for kind in Document.__subclasses__()}


OTHERS: dict[str, Callable[[bytes], Any]] = {
    "schema": TableSchema.from_json,
    "floor": TableFloor.from_json,
    "view": KnownView.from_json,
    "identity of a view": ViewIdentity.from_json,
    "state of a view": Reached.from_json,
    "answer of a runner": read_answer,
}


@dataclass(frozen=True)
class Stored:
    """One document, and how it is read and written."""

    what: str
    text: bytes
    read: Callable[[bytes], Any]


def documents() -> Iterator[Stored]:
    for sample in SAMPLES["documents"]:
        what = sample["what"]
        if what in KINDS:
            read: Callable[[bytes], Any] = KINDS[what].from_json
        else:
            kinds = {"progress": Progress.from_json, "watermark": Watermark.from_json}
            read = OTHERS[what] if what in OTHERS else kinds[what.split()[0]]
        yield Stored(what, json.dumps(sample["document"]).encode(), read)


def letters() -> list[tuple[bytes, bytes | None, RecordHeaders]]:
    return [
        (
            one["key"].encode(),
            one["value"] and one["value"].encode(),
            [(n, text.encode()) for n, text in one["headers"]],
        )
        for one in SAMPLES["letters"]
    ]


KNOWN = list(documents())
ALL = [pytest.param(one, id=f"{number} {one.what}") for number, one in enumerate(KNOWN)]


def test_h113_there_is_a_document_of_each_kind() -> None:
    kinds = {one.what for one in KNOWN}
    assert kinds >= {"progress", "watermark", "progress of a view"} | OTHERS.keys()
    assert not KINDS.keys() - kinds, "a kind of document in the state topic has no stored document"
    assert len(KINDS) >= 15


@pytest.mark.parametrize("stored", ALL)
def test_h113_a_document_is_read_without_loss(stored: Stored) -> None:
    written = orjson.loads(stored.read(stored.text).to_json())
    assert orjson.loads(stored.text).items() <= written.items()


@pytest.mark.parametrize("stored", ALL)
def test_h113_a_member_that_is_not_known_is_passed_over(stored: Stored) -> None:
    grown = _with_everywhere(orjson.loads(stored.text), stored.what)
    assert stored.read(orjson.dumps(grown)) == stored.read(stored.text)


def _with_everywhere(members: dict[str, Any], what: str) -> dict[str, Any]:
    """A member more in the document, and in each record that it consists of."""
    grown = {**members, "grown_later": {"since": 2}}
    if what == "schema":
        grown["columns"] = [{**column, "collation": "C"} for column in members["columns"]]
    if "held" in members:
        grown["held"] = {topic: {**hold, "grown_later": 1} for topic, hold in members["held"].items()}
    return grown


@pytest.mark.parametrize("stored", ALL)
def test_h113_a_document_of_another_format_is_refused(stored: Stored) -> None:
    other = orjson.dumps({**orjson.loads(stored.text), FORMAT: 1_000})
    with pytest.raises(FormatError, match=r"has the format 1000, and this Headrace reads 1 alone") as refused:
        stored.read(other)
    assert refused.value.exit is Exit.FORMAT


@pytest.mark.parametrize("stored", ALL)
def test_h113_a_document_without_a_format_is_damaged(stored: Stored) -> None:
    members = orjson.loads(stored.text)
    del members[FORMAT]
    with pytest.raises(DamagedError, match="has a format that is no number"):
        stored.read(orjson.dumps(members))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff", b'{"format":"1"}', b'{"format":0}'])
@pytest.mark.parametrize("read", [SlotState.from_json, TableSchema.from_json, Progress.from_json, Watermark.from_json])
def test_h113_a_damaged_document_is_one_sentence(read: Callable[[bytes], Any], text: bytes) -> None:
    with pytest.raises(DamagedError) as refused:
        read(text)
    assert "\n" not in refused.value.message


_ODD = st.sampled_from([None, True, 0, -1, 2**70, 1.5, "", "x", [], ["x"], [[1]], {}, {"x": 1}, {"x": {"y": "z"}}])


@given(stored=st.sampled_from(KNOWN), data=st.data())
def test_h113_whatever_a_member_holds_no_reader_breaks(stored: Stored, data: st.DataObject) -> None:
    members = orjson.loads(stored.text)
    name = data.draw(st.sampled_from(sorted(members)))
    if data.draw(st.booleans()):
        del members[name]
    else:
        members[name] = data.draw(_ODD)
    try:
        stored.read(json.dumps(members).encode())
    except CdcError as refused:
        assert refused.exit in (Exit.POISON, Exit.FORMAT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": {"t": {}}}, {"topics": {"t": {"id": 7, "partitions": 1}}},
        {"topics": {"t": {"id": "x", "partitions": True}}}, {"topics": {"t": {"id": "x", "partitions": 0}}},
    ],
)  # fmt: skip
def test_h113_a_topic_without_partitions_is_damaged(wrong: dict[str, object]) -> None:
    sound = {"format": 1, "cluster_id": "c", "topics": {"t": {"id": "x", "partitions": 4}}, "tables": {"public.a": "t"}}
    assert TopicsState.from_json(orjson.dumps(sound)).tables == {"public.a": "t"}
    with pytest.raises(DamagedError, match="the topics document in the state topic cannot be read: a t"):
        TopicsState.from_json(orjson.dumps({**sound, **wrong}))


def test_h113_a_member_of_another_type_is_named() -> None:
    slot = next(one for one in KNOWN if one.what == "slot")
    for name, wrong in (("epoch", "1"), ("epoch", True), ("slot", 7), ("timeline", None), ("timeline", 1.5)):
        with pytest.raises(DamagedError, match=f"its member {name} has another type"):
            slot.read(orjson.dumps({**orjson.loads(slot.text), name: wrong}))
    with pytest.raises(DamagedError, match="has no member 'slot'"):
        slot.read(b'{"format":1,"epoch":1,"system_identifier":"7","timeline":1,"database":"d","database_oid":1}')


def test_h113_a_foreign_key_in_the_state_topic_is_passed_over() -> None:
    ours = RequestState(id="a", table="public.t", after_lsn=1, reason="asked")
    held = {
        b"\xff": b"x",
        b"[]": b"{}",
        b"7": b"",
        b'{"what":7}': b"{}",
        b'{"what":"later"}': b"",
        ours.key(): ours.to_json(),
    }
    assert find_all(held, RequestState) == [ours]
    assert find_all(held, FormState) == []


def test_h113_letters_are_read_without_loss() -> None:
    for key, value, headers in letters():
        letter = DeadLetter.from_record(key, value, headers)
        written = letter.record_headers()
        assert DeadLetter.from_record(key, value, written) == letter
        assert {name: text for name, text in headers if name.startswith("dead.")}.items() <= dict(written).items()
        assert [header for header in headers if not header[0].startswith("dead.")] == list(letter.headers)


def test_h113_a_letter_grows_and_another_format_is_refused() -> None:
    key, value, headers = letters()[0]
    letter = DeadLetter.from_record(key, value, headers)
    written = letter.record_headers()
    own = len(written) - len(letter.headers)
    grown = [*written[:own], ("dead.since", b"7"), *written[own:]]
    assert DeadLetter.from_record(key, value, grown) == letter
    other = [(name, b"2" if name == "dead.format" else text) for name, text in written]
    with pytest.raises(FormatError, match="a dead letter has the format 2"):
        DeadLetter.from_record(key, value, other)
    with pytest.raises(ValueError, match="no header with the format"):
        DeadLetter.from_record(key, value, [one for one in written if one[0] != "dead.format"])


def test_a_letter_about_a_letter_keeps_all_headers() -> None:
    inner = DeadLetter.from_record(*letters()[0])
    outer = DeadLetter(
        sink="cache",
        why=inner.why,
        topic="t",
        partition=0,
        offset=1,
        reason="r",
        key=b"k",
        value=None,
        headers=tuple(inner.record_headers()),
    )
    assert DeadLetter.from_record(b"k", None, outer.record_headers()) == outer
