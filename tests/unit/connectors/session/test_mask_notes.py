"""A table whose masks changed is read again, once, and the note says under which masks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.clock import ManualClock
from cdc.mask_rules import NO_MASKS, MaskKey, MaskRule, Masks
from cdc.masks import MaskState
from cdc.schema import TableSchema
from cdc.state import requests_of
from cdc.testing import MemoryCompactedTopic
from connectors.postgres.masked_shapes import masked_shape
from connectors.session.mask_notes import note_masks
from tests.unit.connectors.postgres import written as w

TABLE = "public.orders"
SHAPE = w.table(w.column("id", "int4", 0), w.column("mail", "text"), w.column("note", "text"))
ONE, OTHER = MaskKey("0123456789abcdef0123456789abcdef"), MaskKey("fedcba9876543210fedcba9876543210")


def masks(key: MaskKey = ONE, **rules: str) -> Masks:
    return Masks({TABLE: {column: MaskRule.parse(rule) for column, rule in rules.items()}}, key)


def noted(state: MemoryCompactedTopic, now: Masks, *shapes: TableSchema) -> list[str]:
    return note_masks(
        state, state.read(), tables=[TABLE, "public.free"], masks=now, shapes=shapes or [SHAPE], clock=ManualClock()
    )


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
    (record,) = (record for record in caplog.records if record.message == "masks_changed")
    assert vars(record)["table"] == TABLE and vars(record)["columns"] == "mail"
