"""The notes of tables with masks: whose changed, which shape the stream has passed, which relations are parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.capture.table_masks import MaskNotes, MaskState
from cdc.process.errors import ConfigError
from cdc.record.schema import TableSchema
from cdc.settings.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks
from connectors.postgres.encoding.masked_rows import masked_shape
from tests.memory_log import MemoryCompactedTopic
from tests.unit.connectors.postgres import written as w

TABLE = "public.orders"
SHAPE = w.table(w.column("id", "int4", 0), w.column("mail", "text"), w.column("note", "text"))
ONE, OTHER = MaskKey("0123456789abcdef0123456789abcdef"), MaskKey("fedcba9876543210fedcba9876543210")


def masks(key: MaskKey = ONE, **rules: str) -> Masks:
    return Masks({TABLE: {column: MaskRule.parse(rule) for column, rule in rules.items()}}, key)


def began(state: MemoryCompactedTopic, now: Masks, *shapes: TableSchema) -> dict[str, list[str]]:
    """What a start finds changed, and notes."""
    notes = MaskNotes(now, state, state.read())
    tables, known = [TABLE, "public.free"], shapes or [SHAPE]
    changed = notes.changed(tables, known)
    notes.note(tables, known, changed)
    return changed


def passed(state: MemoryCompactedTopic, now: Masks) -> int:
    return MaskNotes(now, state, state.read()).passed(TABLE)


def test_a_pipeline_without_masks_notes_nothing() -> None:
    state = MemoryCompactedTopic()
    assert began(state, NO_MASKS) == {}
    assert state.writes == 0


def test_a_table_made_under_its_masks_is_as_noted() -> None:
    """The stream is yet to begin: it may bring everything since the first shape of the relation."""
    state, now = MemoryCompactedTopic(), masks(mail="hmac")
    first = masked_shape(SHAPE, now)
    shapes = replace(first, oid=7), replace(first, version=2), replace(first, version=3)
    assert began(state, now, *shapes) == {}
    found = MaskState.find(state.read())
    assert found is not None and found.tables == {TABLE: {"mail": f"hmac:{ONE.fingerprint}"}}
    assert passed(state, now) == 2
    assert passed(state, NO_MASKS) == 0


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
def test_changed_masks_are_found_once(before: Masks, after: Masks) -> None:
    state = MemoryCompactedTopic()
    first = masked_shape(SHAPE, before)
    began(state, before, first)
    # The shape under the new masks may be registered before the note is compared: by cdc init, or a partial reading.
    shapes = first, replace(masked_shape(SHAPE, after), version=2)
    assert began(state, after, *shapes) == {TABLE: ["mail"]}
    assert began(state, after, *shapes) == {}


def test_h290_rows_from_between_two_notes_are_found() -> None:
    """The mask is as it was noted, and in between cdc init registered the table without it."""
    state, now = MemoryCompactedTopic(), masks(mail="hmac")
    first = masked_shape(SHAPE, now)
    assert began(state, now, first) == {}
    shapes = first, replace(SHAPE, version=2), replace(first, version=3)
    assert began(state, now, *shapes) == {TABLE: ["mail"]}
    assert began(state, now, *shapes) == {}


def test_h290_a_shape_from_before_a_masked_column_is_no_change() -> None:
    state, before, now = MemoryCompactedTopic(), masks(mail="hmac"), masks(mail="hmac", late="drop")
    first = masked_shape(SHAPE, before)
    began(state, before, first)
    assert began(state, now, first) == {TABLE: ["late"]}, "its masks are others now"
    assert began(state, now, first, replace(first, version=2)) == {}


def test_a_mask_of_a_column_that_no_shape_has_is_a_change() -> None:
    """It may have another name in the log. What was read under that has no mask."""
    assert began(MemoryCompactedTopic(), masks(address="hmac"), SHAPE) == {TABLE: ["address"]}


def test_h291_masks_of_a_table_that_is_not_captured_are_refused() -> None:
    with pytest.raises(ConfigError, match="is no captured table"):
        began(MemoryCompactedTopic(), Masks({"public.typo": {"mail": MaskRule.parse("hmac")}}, ONE))


def test_the_shape_that_the_stream_has_passed_stays_noted() -> None:
    state, now = MemoryCompactedTopic(), masks(mail="hmac")
    first = masked_shape(SHAPE, now)
    began(state, now, first)
    later = replace(first, version=4)
    MaskNotes(now, state, state.read()).pass_by(later)
    assert passed(state, now) == 4
    began(state, now, first, later)
    assert passed(state, now) == 4


def test_h287_parts_of_a_table_with_masks_are_noted_for_good() -> None:
    state, now = MemoryCompactedTopic(), masks(mail="hmac")
    notes = MaskNotes(now, state, state.read())
    notes.saw({TABLE: [11, 12]})
    written = state.writes
    notes.saw({TABLE: [12]})
    assert state.writes == written, "what is known is not written again"
    # Another process noted its own meanwhile.
    MaskNotes(now, state, {}).saw({"public.other": [12], TABLE: [13]})
    found = MaskNotes(now, state, state.read()).parts
    assert found == {11: {TABLE}, 12: {TABLE, "public.other"}, 13: {TABLE}}
