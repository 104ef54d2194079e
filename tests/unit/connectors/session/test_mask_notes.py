"""A table whose masks changed is read again, once, and the note says under which masks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.clock import ManualClock
from cdc.errors import ConfigError
from cdc.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks
from cdc.masks import MaskState
from cdc.schema import TableSchema
from cdc.state import CommandState, FormState, ReadingState, RequestState, requests_of
from cdc.testing import MemoryCompactedTopic
from connectors.postgres.masked_shapes import masked_shape
from connectors.session.mask_lineage import partitions_of
from connectors.session.mask_notes import note_masks, note_partitions, note_read
from tests.unit.connectors.postgres import written as w

TABLE = "public.orders"
SHAPE = w.table(w.column("id", "int4", 0), w.column("mail", "text"), w.column("note", "text"))
ONE, OTHER = MaskKey("0123456789abcdef0123456789abcdef"), MaskKey("fedcba9876543210fedcba9876543210")


def masks(key: MaskKey = ONE, **rules: str) -> Masks:
    return Masks({TABLE: {column: MaskRule.parse(rule) for column, rule in rules.items()}}, key)


def noted(state: MemoryCompactedTopic, now: Masks, *shapes: TableSchema) -> list[str]:
    before = {one.id: one.serial for one in requests_of(state.read())}
    note_masks(
        state,
        state.read(),
        tables=[TABLE, "public.free"],
        masks=now,
        shapes=shapes or [SHAPE],
        clock=ManualClock(),
    )
    return [one.table for one in requests_of(state.read()) if before.get(one.id) != one.serial]


def test_a_pipeline_without_masks_notes_nothing() -> None:
    state = MemoryCompactedTopic()
    assert noted(state, NO_MASKS) == []
    assert state.writes == 0


def test_a_table_made_under_its_masks_is_not_read_again() -> None:
    state, now = MemoryCompactedTopic(), masks(mail="hmac")
    assert noted(state, now, masked_shape(SHAPE, now)) == []
    found = MaskState.find(state.read())
    assert found is not None and found.tables == {TABLE: {"mail": f"hmac:{ONE.fingerprint}"}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NO_MASKS, masks(mail="hmac")),
        (masks(mail="hmac"), NO_MASKS),
        (masks(mail="hmac"), masks(OTHER, mail="hmac")),
        (masks(mail="hmac"), masks(mail="drop")),
        (masks(mail="truncate:3"), masks(mail="truncate:4")),
    ],
)
def test_changed_masks_are_read_again_once(before: Masks, after: Masks, caplog: pytest.LogCaptureFixture) -> None:
    state = MemoryCompactedTopic()
    first = masked_shape(SHAPE, before)
    noted(state, before, first)
    # The shape under the new masks may be registered before the note is compared: by cdc init, or a partial reading.
    shapes = first, replace(masked_shape(SHAPE, after), version=2)
    assert noted(state, after, *shapes) == [TABLE]
    (request,) = requests_of(state.read())
    assert request.whole and request.table == TABLE and "other masks" in request.reason
    assert noted(state, after, *shapes) == []
    (record,) = (record for record in caplog.records if record.getMessage() == "masks_changed")
    assert vars(record)["table"] == TABLE and vars(record)["columns"] == "mail"


@pytest.mark.parametrize(("end", "again"), [("failed", True), ("cancelled", True), ("done", False)])
def test_h345_a_reading_that_brought_nothing_is_asked_again(end: str, again: bool) -> None:
    """Whether the note says so when the reading ends, or the next start has to find out."""
    for seen in (True, False):
        state, now = MemoryCompactedTopic(), masks(mail="hmac")
        shapes = SHAPE, replace(masked_shape(SHAPE, now), version=2)
        assert noted(state, now, *shapes) == [TABLE]
        asked = request(state)
        earlier = ReadingState(id=asked.id, table=TABLE, serial=asked.serial - 1, epoch=1, state="done")
        note = MaskState.find(state.read())
        assert note is not None and note.asked == {TABLE: asked.serial}
        assert note_read(state, note, earlier) == note, "one from before"
        over = replace(earlier, serial=asked.serial, state=end)
        # As the scheduler ends it.
        state.write([(over.key(), over.to_json()), (asked.key(), None)])
        if seen:
            assert bool(note_read(state, note, over).asked) == again
        assert noted(state, now, *shapes) == ([TABLE] if again else [])
        if again:
            assert request(state).whole and noted(state, now, *shapes) == [], "it is asked for now"


def request(state: MemoryCompactedTopic) -> RequestState:
    (found,) = requests_of(state.read())
    return found


def test_h290_what_was_asked_before_goes_on_in_the_new_request() -> None:
    state = MemoryCompactedTopic()
    before = RequestState(
        id=f"snapshot:{TABLE}", table=TABLE, after_lsn=77, reason="new", serial=9**18, first=True, by_hand=True
    )
    paused = CommandState(id=before.id, serial=before.serial, state="paused")
    state.write([(one.key(), one.to_json()) for one in (before, paused)])
    assert noted(state, masks(mail="hmac")) == [TABLE]
    now = request(state)
    assert now.serial > before.serial and "other masks" in now.reason
    assert (now.first, now.by_hand, now.state, now.after_lsn) == (True, True, "paused", 77)


def test_h290_a_request_that_was_cancelled_is_no_obstacle() -> None:
    state = MemoryCompactedTopic()
    before = RequestState(id=f"snapshot:{TABLE}", table=TABLE, after_lsn=0, reason="x", serial=1, state="cancelled")
    state.write([(before.key(), before.to_json())])
    assert noted(state, masks(mail="hmac")) == [TABLE]
    assert request(state).state == "asked"


def test_h290_rows_from_between_two_notes_are_read_again() -> None:
    """The mask is as it was noted, and in between cdc init registered the table without it."""
    state, now = MemoryCompactedTopic(), masks(mail="hmac")
    first = masked_shape(SHAPE, now)
    assert noted(state, now, first) == []
    between = replace(SHAPE, version=first.version + 1)
    assert noted(state, now, first, between, replace(first, version=first.version + 2)) == [TABLE]
    assert noted(state, now, first, between, replace(first, version=first.version + 2)) == []


def test_h290_a_shape_from_before_a_masked_column_is_no_change() -> None:
    state, before, now = MemoryCompactedTopic(), masks(mail="hmac"), masks(mail="hmac", late="drop")
    first = masked_shape(SHAPE, before)
    noted(state, before, first)
    assert noted(state, now, first) == [TABLE], "its masks are others now"
    assert noted(state, now, first, replace(first, version=first.version + 1)) == []


def test_h291_masks_of_a_table_that_is_not_captured_are_refused() -> None:
    with pytest.raises(ConfigError, match="is no captured table"):
        noted(MemoryCompactedTopic(), Masks({"public.typo": {"mail": MaskRule.parse("hmac")}}, ONE))


def test_h287_partitions_of_a_table_with_masks_are_not_forgotten() -> None:
    state, now = MemoryCompactedTopic(), masks(mail="hmac")
    # Its own oid is that of a table without partitions.
    leaves = [[1, "public", "orders", 1], [11, "public", "low", 1], [12, "public", "high", 1]]
    form = FormState(table=TABLE, oid=1, columns=[], leaves=leaves, publication="p", links={"13": 700})
    state.write([(form.key(), form.to_json())])
    noted(state, now, masked_shape(SHAPE, now))
    left = replace(form, leaves=[], links={})
    state.write([(left.key(), left.to_json())])
    note = MaskState.find(state.read())
    assert note is not None
    note_partitions(state, note, {TABLE: [14], "public.free": [15]})
    assert partitions_of(state.read()) == dict.fromkeys((11, 12, 13, 14), TABLE)
    noted(state, now, masked_shape(SHAPE, now))
    assert partitions_of(state.read()) == dict.fromkeys((11, 12, 13, 14), TABLE)
