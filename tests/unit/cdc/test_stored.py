"""Documents that outlive the program which wrote them: those of every version, newer ones, damaged ones."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.dead import DeadLetter, RecordHeaders
from cdc.errors import CdcError, DamagedError, Exit, NewerError
from cdc.progress import Progress, Watermark
from cdc.schema import TableSchema
from cdc.state import Document, FormState, RequestState, SlotState, TopicsState, find_all, what_of
from cdc.stored import FORMAT
from cdc.views.answers import read_answer
from cdc.views.known_views import KnownView, is_claim
from cdc.views.state_reach import Reached
from cdc.views.view_identity import ViewIdentity
from sinks.notes import WATERMARK, TableFloor

ROOT = Path(__file__).parents[3]
STORED = ROOT / "tests" / "fixtures" / "stored"
VERSIONS = sorted(folder.name for folder in STORED.iterdir() if folder.is_dir())
PRODUCT = [
    path for folder in ("cdc", "connectors", "snapshot", "sinks", "spark") for path in (ROOT / folder).rglob("*.py")
]


def document_modules() -> Iterator[str]:
    """The modules with a kind of document of the state topic: a kind is known once its module is imported."""
    for path in PRODUCT:
        text = path.read_text(encoding="utf-8")
        bases = (base for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) for base in node.bases)
        if "Document" in text and any(isinstance(base, ast.Name) and base.id == "Document" for base in bases):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


for module in document_modules():
    importlib.import_module(module)
KINDS: dict[str, type[Document]] = {kind.WHAT: kind for kind in Document.__subclasses__()}


@dataclass(frozen=True)
class Stored:
    """One document of a version's folder, and how it is read and written."""

    what: str
    text: bytes
    read: Callable[[bytes], Any]


def documents(version: str) -> Iterator[Stored]:
    folder = STORED / version
    for record in (*_of(folder, "state"), *_of(folder, "state_added")):
        kind = KINDS[what_of(record["key"].encode())]
        yield Stored(kind.WHAT, record["value"].encode(), kind.from_json)
    for record in _of(folder, "schema"):
        yield Stored("schema", record["value"].encode(), TableSchema.from_json)
    for record in _of(folder, "progress"):
        yield Stored("progress", record["value"].encode(), Progress.from_json)
    yield from _views(folder)
    yield from _grown(folder)
    for store in ("redis", "opensearch", "delta", "sql"):
        for name, text in _notes(_of(folder, store)):
            if name == WATERMARK:
                yield Stored(f"{store} {name}", text, Watermark.from_json)
            elif name.startswith("floor:"):
                yield Stored(f"{store} floor", text, TableFloor.from_json)


def _grown(folder: Path) -> Iterator[Stored]:
    """Records and watermarks with a member that came later."""
    members = ("its server", "lineage_added"), ("left tables", "left_added")
    for name, grown in members:
        added = _of(folder, grown)
        for text in added.get("progress", []):
            yield Stored(f"progress with {name}", text.encode(), Progress.from_json)
        for text in added["watermarks"]:
            yield Stored(f"watermark with {name}", text.encode(), Watermark.from_json)


def _views(folder: Path) -> Iterator[Stored]:
    for record in _of(folder, "views"):
        if is_claim(record["key"].encode()):
            yield Stored("progress of a view", record["value"].encode(), Progress.from_json)
        elif what_of(record["key"].encode()) == "answer":
            yield Stored("answer of a runner", record["value"].encode(), read_answer)
        else:
            yield Stored("view", record["value"].encode(), KnownView.from_json)
    for record in _of(folder, "identities_added"):
        yield Stored("identity of a view", record["value"].encode(), ViewIdentity.from_json)
    for document in _of(folder, "view_states"):
        yield Stored("state of a view", document.encode(), Reached.from_json)


def letters(version: str) -> list[tuple[bytes, bytes | None, RecordHeaders]]:
    return [
        (
            record["key"].encode(),
            record["value"] and record["value"].encode(),
            [(name, value.encode()) for name, value in record["headers"]],
        )
        for record in _of(STORED / version, "dead")
    ]


def _of(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def _notes(found: Any) -> Iterator[tuple[str, bytes]]:
    """Name and text of each note; OpenSearch keeps them as members, the others as texts."""
    for name, note in found.items():
        plain = name.rpartition(":watermark")[0] and WATERMARK
        short = name[name.index("floor:") :] if "floor:" in name else plain or name
        if short == WATERMARK and isinstance(note, str):
            yield WATERMARK, note.encode()
        elif short == WATERMARK and "lsn" in note:
            yield WATERMARK, orjson.dumps(note)
        elif short.startswith("floor:"):
            yield short, note.encode() if isinstance(note, str) else orjson.dumps(note)
        elif isinstance(note, dict):
            yield from _notes(note)


ALL = [pytest.param(one, id=f"{version} {one.what}") for version in VERSIONS for one in documents(version)]
KNOWN = [one for version in VERSIONS for one in documents(version)]


def test_h113_the_first_version_left_a_document_of_each_kind() -> None:
    kinds = {one.what for one in documents("0.1")}
    stores = {f"{store} {WATERMARK}" for store in ("redis", "opensearch", "delta", "sql")}
    assert kinds >= stores | {"schema", "progress", "redis floor", "opensearch floor", "delta floor", "sql floor"}
    assert kinds >= {"view", "progress of a view", "state of a view", "identity of a view"}
    assert not KINDS.keys() - kinds, "a kind of document in the state topic has no stored document"
    assert len(KINDS) >= 15


@pytest.mark.parametrize("stored", ALL)
def test_h113_a_document_of_every_version_is_read_without_loss(stored: Stored) -> None:
    written = orjson.loads(stored.read(stored.text).to_json())
    assert written.pop(FORMAT) >= 1
    former = orjson.loads(stored.text)
    former.pop(FORMAT, None)
    assert former.items() <= written.items()


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
def test_h113_a_newer_document_is_refused_in_one_sentence(stored: Stored) -> None:
    newer = orjson.dumps({**orjson.loads(stored.text), FORMAT: 1_000})
    with pytest.raises(NewerError, match=r"was written by a newer Headrace \(format 1000") as refused:
        stored.read(newer)
    assert refused.value.exit is Exit.NEWER


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
        assert refused.exit in (Exit.POISON, Exit.NEWER)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topics": {"t": {}}}, {"topics": {"t": {"id": 7, "partitions": 1}}},
        {"topics": {"t": {"id": "x", "partitions": True}}}, {"topics": {"t": {"id": "x", "partitions": 0}}},
    ],
)  # fmt: skip
def test_h113_a_topic_without_partitions_is_damaged(wrong: dict[str, object]) -> None:
    sound = {"cluster_id": "c", "topics": {"t": {"id": "x", "partitions": 4}}, "tables": {"public.a": "t"}}
    assert TopicsState.from_json(orjson.dumps(sound)).tables == {"public.a": "t"}
    with pytest.raises(DamagedError, match="the topics document in the state topic cannot be read: a t"):
        TopicsState.from_json(orjson.dumps({**sound, **wrong}))


def test_h113_a_member_of_another_type_is_named() -> None:
    slot = next(one for one in documents("0.1") if one.what == "slot")
    for name, wrong in (("epoch", "1"), ("epoch", True), ("slot", 7), ("timeline", None), ("timeline", 1.5)):
        with pytest.raises(DamagedError, match=f"its member {name} has another type"):
            slot.read(orjson.dumps({**orjson.loads(slot.text), name: wrong}))
    with pytest.raises(DamagedError, match="has no member 'slot'"):
        slot.read(b'{"epoch":1,"system_identifier":"7","timeline":1,"database":"d","database_oid":1}')


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


@pytest.mark.parametrize("version", VERSIONS)
def test_h113_letters_of_every_version_are_read(version: str) -> None:
    for key, value, headers in letters(version):
        letter = DeadLetter.from_record(key, value, headers)
        written = letter.record_headers()
        assert DeadLetter.from_record(key, value, written) == letter
        assert {name: text for name, text in headers if name.startswith("dead.")}.items() <= dict(written).items()
        assert [header for header in headers if not header[0].startswith("dead.")] == list(letter.headers)


def test_h113_a_letter_may_grow_and_a_newer_one_is_refused() -> None:
    key, value, headers = letters("0.1")[0]
    letter = DeadLetter.from_record(key, value, headers)
    written = letter.record_headers()
    own = len(written) - len(letter.headers)
    grown = [*written[:own], ("dead.since", b"7"), *written[own:]]
    assert DeadLetter.from_record(key, value, grown) == letter
    newer = [(name, b"2" if name == "dead.format" else text) for name, text in written]
    with pytest.raises(NewerError, match="a dead letter was written by a newer Headrace"):
        DeadLetter.from_record(key, value, newer)


def test_a_letter_about_a_letter_keeps_all_headers() -> None:
    inner = DeadLetter.from_record(*letters("0.1")[0])
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
