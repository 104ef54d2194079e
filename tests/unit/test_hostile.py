"""What comes from topics and servers is data: whatever it is, a reader answers with one of its own errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import CdcError, DamagedError, Exit, FormatError
from cdc.record.state import Document, RequestState
from cdc.settings.model import DebeziumSettings
from cdc.wire.dead_letter import DeadLetter
from cdc.wire.debezium.reading import DebeziumReader
from connectors.debezium.client import ConnectClient
from connectors.debezium.offsets import reads_incrementally, shown_lsn, snapshot_state
from connectors.debezium.status import parse_status
from snapshot.later.planner import StateView
from tests.unit.connectors.debezium.rest_server import Script, rest_server

SECRET = "value of a row"
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "RUNNING", "0/1", SECRET, "\u0664", "127"]), st.text(max_size=4),
)  # fmt: skip


def documents(*names: str) -> st.SearchStrategy[Any]:
    """JSON with members of these names at any depth, of any type."""
    members = st.sampled_from(names) | st.text(max_size=3)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(members, inner, max_size=4),
        max_leaves=12,
    )


def shaped(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object as it should be, with some members missing."""
    return st.fixed_dictionaries({}, optional=members)


READERS = (shown_lsn, snapshot_state, reads_incrementally)
states = st.one_of(
    documents("connector", "tasks", "state", "name"),
    shaped(
        name=leaves,
        connector=documents("state", "trace") | shaped(state=leaves, trace=leaves, worker_id=leaves),
        tasks=documents("id", "state") | st.lists(shaped(id=leaves, state=leaves, trace=leaves), max_size=2),
    ),
)
offsets = st.one_of(
    documents("offset", "lsn", "snapshot"),
    st.lists(shaped(offset=documents("lsn") | shaped(lsn=leaves, lsn_commit=leaves, snapshot=leaves)), max_size=2),
)


def assert_answered(failure: CdcError) -> None:
    assert failure.exit is not Exit.BUG
    assert SECRET not in failure.message + failure.hint
    assert "\n" not in failure.message


@given(states)
def test_h138_any_state_of_a_connector(answer: Any) -> None:
    try:
        status = parse_status(answer)
    except CdcError as failure:
        assert_answered(failure)
    else:
        assert isinstance(status.runs, bool)
        assert isinstance(status.fault, str)


@given(offsets, st.sampled_from(READERS))
def test_h138_any_offsets_of_a_connector(answer: Any, read: Callable[[Any], int | str | None]) -> None:
    try:
        found = read(answer)
    except CdcError as failure:
        assert_answered(failure)
    else:
        assert found is None or isinstance(found, str) or 0 <= found < 2**64


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"\xff\xfe", [], {}, None, 7, {"configs": 3}, {"offsets": {"a": 1}}]
)
@pytest.mark.parametrize("call", ["plugins", "status", "offsets", "running_config", "cluster"])
def test_h138_any_answer_of_a_rest_server(answer: Any, call: str) -> None:
    with rest_server(Script([(200, answer)])) as url:
        client = ConnectClient(DebeziumSettings(url=url))
        try:
            found = client.cluster() if call == "cluster" else called(client, call)
        except CdcError as failure:
            assert_answered(failure)
        else:
            assert isinstance(found, dict | list)


def called(client: ConnectClient, call: str) -> Any:
    method = getattr(client, call)
    return method() if call == "plugins" else method("shop")


@given(documents("configs", "value", "errors", "name"))
def test_h138_any_verdict_on_a_configuration(answer: Any) -> None:
    with rest_server(Script([(200, answer)])) as url:
        client = ConnectClient(DebeziumSettings(url=url))
        try:
            assert isinstance(client.validate({"connector.class": "x"}), dict)
        except CdcError as failure:
            assert_answered(failure)


@pytest.mark.parametrize("kind", Document.__subclasses__(), ids=lambda kind: kind.WHAT)
@pytest.mark.parametrize("value", [SECRET, {SECRET: SECRET}, [SECRET], {"id": [SECRET]}])
def test_h138_a_damaged_document_is_not_quoted(kind: type[Document], value: Any) -> None:
    members = {one.name: value for one in fields(kind)}
    try:
        kind.from_json(orjson.dumps(members))
    except CdcError as failure:
        assert_answered(failure)
    else:
        assert isinstance(value, str), "texts alone may be taken for what they are not"


headers = st.lists(
    st.tuples(
        st.sampled_from([f"cdc.dead.{n}" for n in ("sink", "why", "topic", "partition", "offset", "reason", "format")])
        | st.text(max_size=4),
        st.none()
        | st.binary(max_size=4)
        | st.sampled_from([b"refused", b"1", b"-1", SECRET.encode(), "\u0664".encode()]),
    ),
    max_size=9,
)


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8), headers)
def test_h138_any_dead_letter(key: bytes | None, value: bytes | None, given: list[tuple[str, bytes | None]]) -> None:
    try:
        letter = DeadLetter.from_record(key, value, given)
    except (ValueError, KeyError, DamagedError, FormatError):
        return
    assert (letter.key, letter.value) == (key, value)


requests = st.one_of(
    documents("what", "id", "table", "where"),
    shaped(
        format=leaves, id=leaves, table=leaves, where=leaves, keys=documents("id"), serial=leaves, state=leaves,
        command=leaves,
    ),
)  # fmt: skip


@given(
    st.lists(st.tuples(requests | st.just({"what": RequestState.WHAT, "id": "a"}), st.none() | requests), max_size=3)
)
def test_h138_any_record_of_the_state_topic(records: list[tuple[Any, Any]]) -> None:
    heard = StateView()
    for key, value in records:
        try:
            heard.apply(dumped(key), None if value is None else dumped(value))
        except CdcError as failure:
            assert_answered(failure)
    assert isinstance(heard.requests_now(), list)


def dumped(document: Any) -> bytes:
    """As bytes; numbers that orjson does not take as texts."""
    return orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS)


changes = st.one_of(
    documents("op", "after", "before", "source", "payload", "schema"),
    shaped(
        op=st.sampled_from(["c", "u", "d", "r", "t", "m", "x"]), ts_ms=leaves, before=documents("id"),
        after=documents("id"),
        source=shaped(
            connector=st.sampled_from(["postgresql", "mysql", "sqlserver", "oracle", "mongodb", "x"]), lsn=leaves,
            schema=leaves, table=leaves, snapshot=leaves, txId=leaves, file=leaves, pos=leaves, gtid=leaves,
            commit_lsn=leaves, change_lsn=leaves, event_serial_no=leaves, scn=leaves, commit_scn=leaves, db=leaves,
        ),
    ),
)  # fmt: skip


@given(
    st.none() | st.binary(max_size=5) | documents("id", "schema", "payload").map(dumped),
    st.none() | st.binary(max_size=5) | changes.map(dumped) | changes.map(lambda one: dumped({"payload": one})),
)
def test_h138_any_record_of_debezium(key: bytes | None, value: bytes | None) -> None:
    for reader in (DebeziumReader(), DebeziumReader(documents=True)):
        assert reader.read("shop.public.t", 0, key, value) is not None
