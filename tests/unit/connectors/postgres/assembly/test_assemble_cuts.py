"""The same records, however the stream is cut into batches or begun again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cdc.record.position import Position
from cdc.record.schema import Identity
from tests.unit.connectors.postgres import written as w
from tests.unit.connectors.postgres.assembly.assembling import Read, Stream, seqs


@st.composite
def histories(draw: st.DrawFn, identity: Identity) -> list[list[bytes]]:
    """Messages of some transactions on a table of two columns, as Postgres would send them."""
    rows: dict[int, bytes] = {}
    found = []
    for _ in range(draw(st.integers(1, 4))):
        messages = []
        for _ in range(draw(st.integers(0, 6))):
            messages.append(_change(draw, rows, identity))
        found.append(messages)
    return found


def _change(draw: st.DrawFn, rows: dict[int, bytes], identity: Identity) -> bytes:
    free = [key for key in range(6) if key not in rows]
    note = draw(st.sampled_from((b"a", b"b", b'"', b"x" * 600)))
    kinds = [*(["insert"] if free else []), *(["update", "move", "delete"] if rows else []), "truncate"]
    kind = draw(st.sampled_from(kinds))
    if kind == "truncate":
        rows.clear()
        return w.truncate(w.OID)
    if kind == "insert":
        key = draw(st.sampled_from(free))
        rows[key] = note
        return w.insert(b"%d" % key, note)
    key = draw(st.sampled_from(sorted(rows)))
    old = rows.pop(key)
    before: dict[str, Any] = {"old": [b"%d" % key, old]} if identity == Identity.FULL else {"key": [b"%d" % key, None]}
    if kind == "delete":
        return w.delete(**before)
    to = draw(st.sampled_from(free)) if kind == "move" and free else key
    left_out = len(old) > 500 and draw(st.booleans())
    rows[to] = old if left_out else note
    if to == key and identity != Identity.FULL:
        before = {}
    return w.update([b"%d" % to, w.u if left_out else note], **before)


identities = st.sampled_from((Identity.DEFAULT, Identity.FULL))


class History:
    """Frames of a history, its final rows, and what a re-select finds: the rows at its end."""

    def __init__(self, identity: Identity, transactions: list[list[bytes]]) -> None:
        self.shape = w.table(identity=identity)
        whole = Stream(self.shape)
        self.frames = [
            frame for n, messages in enumerate(transactions) for frame in whole.framed(800 + 100 * n, *messages)
        ]


@given(identities.flatmap(lambda i: st.tuples(st.just(i), histories(i))), st.data())
def test_records_are_the_same_however_the_stream_is_cut(
    drawn: tuple[Identity, list[list[bytes]]], data: st.DataObject
) -> None:
    history = History(*drawn)
    once, cut = Stream(history.shape), Stream(history.shape)
    once.feed(history.frames)
    rest = history.frames
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        cut.feed(rest[:size])
        rest = rest[size:]
    assert cut.records == once.records
    assert cut.commits == once.commits
    assert not cut.assembler.in_transaction


@given(identities.flatmap(lambda i: st.tuples(st.just(i), histories(i))), st.data())
def test_h75_after_a_restart_a_partition_resumes_behind_its_end(
    drawn: tuple[Identity, list[list[bytes]]], data: st.DataObject
) -> None:
    history = History(*drawn)
    once = Stream(history.shape, lane_count=3)
    once.feed(history.frames)
    by_lane: dict[int, list[Read]] = {lane: [] for lane in range(3)}
    for record in once.read():
        by_lane[record.lane].append(record)
    # What the log holds: of each partition a beginning of its own.
    kept = {lane: found[: data.draw(st.integers(0, len(found)))] for lane, found in by_lane.items()}
    seen = {lane: Position.parse(found[-1].headers["pos"]) for lane, found in kept.items() if found}
    again = Stream(history.shape, lane_count=3, seen=seen)
    again.feed(history.frames)
    for lane, found in by_lane.items():
        new = [r for r in again.read() if r.lane == lane]
        assert kept[lane] + new == found


def test_transactions_below_the_progress_lsn_are_not_decoded() -> None:
    stream = Stream(w.table(), after_lsn=900)
    assert stream.transaction(800, b"I no row at all", w.update([b"x"]), w.truncate(w.OID)) == []
    assert seqs(stream.transaction(900, w.insert(b"1", b"a"))) == [(1, "c")]
    assert [commit.commit_lsn for commit in stream.commits] == [800, 900]
