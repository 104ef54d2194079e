"""Columns of a table with masks by their numbers, whatever a lagging message calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from cdc.errors import ConfigError
from cdc.mask_rules import MaskKey, MaskRule, Masks
from cdc.schema import TableSchema
from cdc.topic import TableName
from connectors.postgres.mask_cover import Announced, ColumnEntry, KnownShapes, concerned, cover
from tests.unit.connectors.postgres import written as w

TABLE = TableName("public", "orders")
HMAC = MaskRule.parse("hmac")
KEY = MaskKey("0123456789abcdef0123456789abcdef")
THEN, SINCE = 500, 900
"""Transactions: the message's is 700."""


def masks(table: str = "public.orders", **rules: str) -> Masks:
    return Masks({table: {column: MaskRule.parse(rule) for column, rule in rules.items()}}, KEY)


def shape(table: TableName = TABLE, **numbers: int) -> TableSchema:
    columns = (replace(w.column(name, "text"), attnum=number) for name, number in numbers.items())
    return replace(w.table(*columns), table=table)


def entries(*live: int, dropped: Mapping[int, int] | None = None, born: int = THEN) -> list[ColumnEntry]:
    gone = [ColumnEntry(number, False, when) for number, when in (dropped or {}).items()]
    return sorted([*(ColumnEntry(number, True, born) for number in live), *gone])


def announced(
    names: Sequence[str],
    now: TableSchema | None,
    found: Sequence[ColumnEntry] = (),
    **known: object,
) -> Announced:
    shapes = KnownShapes(xid=700, **known)  # type: ignore[arg-type]
    return Announced(table=TABLE, oid=w.OID, names=names, now=now, entries=found, known=shapes)


def test_a_message_as_the_catalog_is_has_its_numbers() -> None:
    one = announced(["id", "mail"], shape(id=1, mail=3), entries(1, 3, dropped={2: THEN}))
    found = cover(one, masks(mail="hmac"))
    assert found.numbers == (1, 3) and found.rules == {"mail": HMAC}


def test_a_column_masked_under_its_name_of_now_is_masked() -> None:
    one = announced(
        ["id", "mail"],
        shape(id=1, address=2),
        entries(1, 2, born=SINCE),
        latest=shape(id=1, mail=2),
    )
    assert cover(one, masks(address="hmac")).rules == {"mail": HMAC}


def test_a_mask_of_a_column_that_came_later_is_none_yet() -> None:
    one = announced(["id", "mail"], shape(id=1, mail=2, late=3), entries(1, 2) + entries(3, born=SINCE))
    assert cover(one, masks(mail="hmac", late="drop")).rules == {"mail": HMAC}


def test_h347_a_change_by_an_older_transaction_may_be_later() -> None:
    """It took its number, 500, and waited for the message's transaction, 700, before it changed the table."""
    found = sorted([*entries(1, 3, 4), *entries(dropped={2: THEN})])
    names, now, then = ["id", "mail", "note"], shape(id=1, mail=3, note=4), shape(id=1, mail=2, note=3)
    with pytest.raises(ConfigError, match="may have had other names"):
        cover(announced(names, now, found, latest=then, covered={2: (TABLE, "mail")}), masks(mail="hmac"))
    assert cover(announced(names, now, found, latest=now), masks(mail="hmac")).numbers == (1, 3, 4)
    # Nothing else is known, or both say the same masks.
    assert cover(announced(names, now, found), masks(mail="hmac")).numbers == (1, 3, 4)
    assert cover(announced(names, now, found, latest=then), masks(id="hmac")).rules == {"id": HMAC}


UNCERTAIN = {
    "swapped names": (["id", "mail", "note"], shape(id=1, note=2, mail=3), entries(1, 2, 3, born=SINCE), None),
    "dropped, its name taken over, and that one's given to a new one": (
        ["id", "mail", "note"],
        shape(id=1, mail=3, note=4),
        entries(1, 3, 4, dropped={2: SINCE}, born=SINCE),
        shape(id=1, mail=2, note=3),
    ),
    "moved along without a drop": (
        ["id", "mail", "note"],
        shape(id=1, other=2, mail=3, note=4),
        entries(1, 2, 3, 4, born=SINCE),
        None,
    ),
    "nothing is known": (["id", "mail"], None, (), None),
    "a column of no number": (["id", "mail", "gone"], shape(id=1, mail=2), entries(1, 2, born=SINCE), None),
}


@pytest.mark.parametrize("case", UNCERTAIN)
def test_h284_columns_of_uncertain_names_are_refused(case: str) -> None:
    names, now, found, latest = UNCERTAIN[case]
    one = announced(names, now, found, latest=latest)
    with pytest.raises(ConfigError, match="may have had other names"):
        cover(one, masks(mail="hmac"))


def test_h284_of_swapped_names_both_columns_are_masked() -> None:
    """One is meant by the settings now. The other one was, as far as anybody knows, when the rows were written."""
    now, then = shape(id=1, note=2, mail=3), shape(id=1, mail=2, note=3)
    one = announced(["id", "mail", "note"], now, entries(1, 2, 3, born=SINCE), latest=then)
    assert cover(one, masks(mail="hmac")).rules == {"mail": HMAC, "note": HMAC}


def test_h284_first_columns_without_a_drop_are_certain() -> None:
    """Every entry changed since, as after a change of a default, and no column left."""
    one = announced(["id", "mail"], shape(id=1, mail=2), entries(1, 2, born=SINCE))
    assert cover(one, masks(mail="hmac")).numbers == (1, 2)
    one = announced(["id", "mail"], shape(id=1, mail=2), entries(1, 2, born=SINCE, dropped={3: SINCE}))
    assert cover(one, masks(mail="hmac")).numbers == (1, 2), "one that was dropped behind them changes nothing"


def test_h284_two_masks_for_one_column_are_refused() -> None:
    one = announced(
        ["id", "mail", "note"],
        shape(id=1, note=2, mail=3),
        entries(1, 2, 3, born=SINCE),
        latest=shape(id=1, mail=2, note=3),
    )
    with pytest.raises(ConfigError, match="another name and another mask"):
        cover(one, masks(mail="hmac", note="truncate:3"))


def test_h285_a_column_masked_under_another_name_is_refused() -> None:
    former = {2: (TableName("public", "former"), "mail")}
    one = announced(["id", "mail"], shape(id=1, mail=2), entries(1, 2), covered=former)
    assert concerned(one, Masks())
    with pytest.raises(ConfigError, match=r"masked under another name, mail of public\.former"):
        cover(one, Masks())
    assert cover(one, masks(mail="drop")).rules == {"mail": MaskRule.parse("drop")}
    taken_off = announced(["id", "mail"], shape(id=1, mail=2), entries(1, 2), covered={2: (TABLE, "mail")})
    assert cover(taken_off, Masks()).rules == {}, "a mask that was taken off is meant"


def test_h285_a_table_masked_under_its_name_of_now_is_masked() -> None:
    now = shape(TableName("public", "clients"), id=1, mail=2)
    one = announced(["id", "mail"], now, entries(1, 2))
    assert concerned(one, masks("public.clients", mail="hmac"))
    assert cover(one, masks("public.clients", mail="hmac")).rules == {"mail": HMAC}


def test_a_mask_of_no_column_is_refused() -> None:
    one = announced(["id", "mail"], shape(id=1, mail=2), entries(1, 2))
    with pytest.raises(ConfigError, match=r"mask mial of public\.orders, which has no such column"):
        cover(one, masks(mial="hmac"))
