"""Masks as Debezium's options, and those that it cannot keep."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cdc.errors import ConfigError
from cdc.settings import Settings, parse
from connectors.debezium.connector_config import connector_config


def settings(columns: dict[str, str], **debezium: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": ["public.*"],
                       "mask_key": "env:CDC_MASK_KEY"},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": debezium,
            "tables": {"public.order.items": {"columns": columns}},
        }
    )  # fmt: skip


def test_drop_and_truncate_are_debeziums_own_options() -> None:
    config = connector_config(settings({"ssn": "drop", "a,b": "drop", "note": "truncate:20", "Text": "truncate:5"}))
    assert re.fullmatch(config["column.truncate.to.20.chars"].removeprefix("(?-i)"), "public.order.items.note")
    assert "column.truncate.to.5.chars" in config
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
        connector_config(settings({"note": "truncate:20"}, options={option: "x"}))


def test_masks_are_for_postgres() -> None:
    with pytest.raises(ConfigError, match="masks are set for tables of Postgres"):
        connector_config(settings({"note": "drop"}, database="mysql", database_password="${env:P}"))
