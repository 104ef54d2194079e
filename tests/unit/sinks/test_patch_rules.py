"""Which document a patch of MongoDB's is applied to, and the sentence where there is none."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from cdc.wire.debezium.mongodb_read import UNBROKEN_FROM
from cdc.wire.plain import PlainTable
from sinks.batch import Event
from sinks.patches import after_patches, is_patch
from sinks.port import StoredRow
from tests.contract.test_patches import Collection
from tests.unit.cdc.wire.debezium.mongodb import CUSTOMERS

PLAIN = PlainTable(CUSTOMERS)
NOTHING = "it is a patch, and nothing here holds the document that it changes: "
BROKEN = "it is a patch, and the log may have lost one between it and the document held here: "


def stored(document: dict[str, Any], pos: str | None) -> StoredRow:
    row = orjson.dumps({"id": "1004", "document": document})
    return StoredRow(key="1004", pos=pos or "", row=row)


def made(history: list[Event], before: StoredRow | None = None) -> Any:
    return orjson.loads(orjson.dumps(after_patches(history, before, PLAIN)))["document"]


def test_h38_what_the_stored_document_holds_is_not_applied_again() -> None:
    """Below its position and at it. Each patch counts once."""
    topic = Collection()
    first, second, third = (topic.patch({"x": n, f"from{n}": n}) for n in (1, 2, 3))
    assert made([first, second, third], stored({"x": 9}, second.pos)) == {"x": 3, "from3": 3}


@pytest.mark.parametrize("before", [None, stored({"x": 9}, "")])
def test_h67_a_patch_behind_a_delete_has_no_document(before: StoredRow | None) -> None:
    topic = Collection()
    whole, gone, last = topic.record("c", after='{"x":1}'), topic.record("d", before='{"x":1}'), topic.patch({"y": 1})
    for delete in (
        gone,
        gone._replace(value=None),
        gone._replace(op="u", value=None),
        gone._replace(value=whole.value),
    ):
        with pytest.raises(ValueError, match=NOTHING):
            made([whole, delete, last], before)
    again, more = topic.record("c", after='{"x":2}'), topic.patch({"y": 2})
    assert made([whole, gone, again, more], before) == {"x": 2, "y": 2}


def test_h67_a_patch_without_a_document_says_so_before_all() -> None:
    topic = Collection(kept=False)
    topic.compacted(3)
    one = topic.patch({"y": 1})
    assert orjson.loads(one.value or b"")[UNBROKEN_FROM] > ""
    with pytest.raises(ValueError, match=NOTHING):
        made([one])
    with pytest.raises(ValueError, match=BROKEN):
        made([one], stored({"x": 9}, "0" * 32))


def test_h67_a_document_that_is_none_takes_no_patch() -> None:
    topic = Collection()
    whole, last = topic.record("c", after='{"x":1}'), topic.patch({"y": 1})
    value = (whole.value or b"").replace(b'{\\"x\\":1}', b"[1]")
    assert value != whole.value
    with pytest.raises(ValueError, match="the value of column document does not fit its type"):
        made([whole._replace(value=value), last])


def test_a_record_that_only_looks_like_a_patch_is_none() -> None:
    value = Collection().patch({"y": 1}).value or b""
    assert is_patch(value)
    assert is_patch(None) is is_patch(value[:-1]) is False
    assert is_patch(value.replace(b'"document":"', b'"document":"no ')) is False
