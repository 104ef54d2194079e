"""No request names a plain value of a masked column: it would stand in the state topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.operate.snapshot_requests import condition_on, key_texts
from cdc.process.errors import ConfigError
from cdc.record.schema import DroppedColumn, Mask, TableSchema
from tests.unit.connectors.postgres import written as w

MASK = Mask(rule="hmac:00", type="text", type_oid=25, kind="text")
ID, MAIL = w.column("id", "int4", 0), replace(w.column("mail", "text"), mask=MASK)
DROPPED = (DroppedColumn(name="ssn", attnum=3, type_oid=25),)
SHAPE: TableSchema = replace(w.table(ID, MAIL), dropped=DROPPED)


@pytest.mark.parametrize("text", ["mail = 'a@b'", "id = 1 or not (mail like 'a%')", "mail is null"])
def test_a_condition_on_a_masked_column_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"mail of public\.orders is masked") as refused:
        condition_on(text, SHAPE)
    assert "a@b" not in refused.value.message + (refused.value.hint or "")


def test_a_condition_on_a_dropped_column_is_refused() -> None:
    with pytest.raises(ConfigError, match="no captured column ssn"):
        condition_on("ssn = '1'", SHAPE)


def test_rows_are_asked_for_by_plain_keys_alone() -> None:
    assert key_texts([["1"]], SHAPE) == (("1",),)
    with pytest.raises(ConfigError, match=r"the key of public\.orders is masked"):
        key_texts([["1"]], w.table(replace(ID, mask=MASK), MAIL))
