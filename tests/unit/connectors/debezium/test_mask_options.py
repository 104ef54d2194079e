"""Masks as Debezium's options, and those that it cannot keep."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cdc.errors import ConfigError
from cdc.mask_rules import NO_MASKS
from cdc.masks import rules_of
from cdc.settings import Settings, parse
from cdc.views.refused import ViewRefused
from cdc.views.view_plan import planned
from connectors.debezium.connector_config import connector_config
from connectors.debezium.mask_options import remasked_columns
from tests.unit.connectors.postgres import written as w

NAMED = ('"public"."order.items"', "public.orders", "public.order")


def settings(columns: dict[str, str], tables: tuple[str, ...] = NAMED, **debezium: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": tables,
                       "mask_key": "env:CDC_MASK_KEY"},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": debezium,
            "tables": {"public.order.items": {"columns": columns}},
        }
    )  # fmt: skip


def test_drop_and_truncate_are_debeziums_own_options() -> None:
    config = connector_config(settings({"ssn": "drop", "a,b": "drop", "note": "truncate:40", "Text": "truncate:28"}))
    assert re.fullmatch(config["column.truncate.to.40.chars"].removeprefix("(?-i)"), "public.order.items.note")
    assert "column.truncate.to.28.chars" in config
    dropped = [one.removeprefix("(?-i)") for one in config["column.exclude.list"].split(",")]
    assert len(dropped) == 2 and all("\\." in one for one in dropped)
    assert not re.fullmatch(dropped[1], "public_order_items_ssn")
    assert not [option for option in connector_config(settings({})) if option.startswith(("column.exc", "column.tr"))]


def test_hmac_is_refused_because_its_salt_would_be_shown() -> None:
    with pytest.raises(ConfigError, match="without showing its salt"):
        connector_config(settings({"mail": "hmac"}))


@pytest.mark.parametrize("option", ["column.exclude.list", "column.include.list", "column.truncate.to.20.chars",
                                    "post.processors", "message.key.columns", "converters"])  # fmt: skip
def test_an_option_that_could_undo_a_mask_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(option)):
        connector_config(settings({"note": "truncate:40"}, options={option: "x"}))


def test_masks_are_for_postgres() -> None:
    with pytest.raises(ConfigError, match="masks are set for tables of Postgres"):
        connector_config(settings({"note": "drop"}, database="mysql", database_password="${env:P}"))


@pytest.mark.parametrize("characters", [1, 27])
def test_h292_debeziums_word_for_a_left_out_value_is_not_cut(characters: int) -> None:
    """A reader would take what is left of it for the value."""
    with pytest.raises(ConfigError, match="would cut __debezium_unavailable_value"):
        connector_config(settings({"note": f"truncate:{characters}"}))


def test_h294_a_view_over_debeziums_tables_knows_their_masks() -> None:
    columns = (("id", 0), ("note", None), ("ssn", None))
    shape = w.table(*(w.column(name, "varchar", key) for name, key in columns), name="order.items")
    found = rules_of(settings({"note": "truncate:40", "ssn": "drop"})).marked(shape)
    assert found.noted_masks == {"note": "truncate:40", "ssn": "drop"}
    assert [(one.name, one.kind) for one in found.columns] == [("id", "varchar"), ("note", "varchar")]
    assert NO_MASKS.marked(shape) == shape
    with pytest.raises(ViewRefused, match="note is masked"):
        planned('select id, length(note) as n from "order.items"', [found], collation="C")
    planned('select id, note from "order.items"', [found], collation="C")


def test_h320_a_pattern_of_tables_is_refused_beside_masks() -> None:
    """It takes in partitions, whose rows Debezium's snapshot writes under their own names."""
    with pytest.raises(ConfigError, match=re.escape("has the pattern public.o* beside masks")):
        connector_config(settings({"note": "drop"}, tables=("public.orders", "public.o*")))
    connector_config(settings({}, tables=("public.o*",)))
    connector_config(settings({"note": "drop"}, tables=('"public"."o*"', '"public"."order.items"')))


def test_h322_tables_whose_masks_differ_from_those_in_force() -> None:
    first = {"ssn": "drop", "note": "truncate:40", "a,b.c": "drop"}
    running = connector_config(settings(first))
    changed = {"ssn": "truncate:30", "note": "truncate:41", "a,b.c": "drop", "d.e": "drop"}
    table = "public.order.items"
    assert remasked_columns(settings(first), running, []) == {}
    assert remasked_columns(settings(changed), running, []) == {table: ["d.e", "note", "ssn"]}
    assert remasked_columns(settings({}), running, []) == {table: ["a,b.c", "note", "ssn"]}
    assert remasked_columns(settings(first), {}, []) == {table: ["a,b.c", "note", "ssn"]}
    assert remasked_columns(settings({}, tables=("public.*",)), running, [table])[table] == ["a,b.c", "note", "ssn"]
    assert remasked_columns(settings({}, tables=("crm.a",)), running, []) == {}
    assert remasked_columns(settings({}), {"column.exclude.list": "public.orders.v"}, []) == {}
