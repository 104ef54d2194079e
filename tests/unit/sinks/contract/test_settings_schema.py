"""The settings as a JSON Schema: it takes what the settings take, and refuses what they refuse."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import ConfigError
from cdc.settings.settings_reference import example
from sinks.contract.kinds import parse_settings, settings_schema, sink_sections
from tests.json_schema import faults

SCHEMA = settings_schema()
EXAMPLE = example(sink_sections())
SETTING = re.compile(r'^# (\w+ = \S|\[[\w."]+\]$)', re.MULTILINE)


def document(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": "shop",
        "source": {"dsn": "dbname=shop", "tables": ["public.orders"]},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
        "sinks": {"cache": {"kind": "redis", "url": "redis://127.0.0.1:6379/0"}},
    }
    for path, value in changes.items():
        *parts, name = path.split("__")
        into = made
        for part in parts:
            into = into.setdefault(part, {})
        into[name] = value
    return made


def test_the_example_fits_with_every_setting_that_it_shows() -> None:
    assert faults(SCHEMA, tomllib.loads(EXAMPLE)) == []
    whole = tomllib.loads(SETTING.sub(r"\1", EXAMPLE))
    assert whole["log"]["replay_window"] == "7d"
    assert faults(SCHEMA, whole) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nmae", "x"), ("name", "1 bad"), ("source__tables", "public.orders"), ("source__password", "hunter2"),
        ("log__partitions", 0), ("log__replay_window", 7), ("log__replay_window", "7 weeks"),
        ("log__max_message_bytes", "1 TB"), ("log__max_message_bytes", -1), ("log__encoding", "avro"),
        ("capture__http_addres", ""), ("sinks__cache__kind", "rediss"), ("sinks__cache__port", 6379),
        ("sinks__search", {"kind": "opensearch"}), ("sinks__search", {"url": "http://h"}),
    ],
)  # fmt: skip
def test_what_the_settings_refuse_the_schema_refuses(path: str, value: object) -> None:
    wrong = document(**{path: value})
    with pytest.raises(ConfigError):
        parse_settings(wrong)
    assert faults(SCHEMA, wrong)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("log__replay_window", "1.5 h"), ("log__max_message_bytes", 900_000), ("log__max_message_bytes", "16MB"),
        ("source__password", "env:PASSWORD"), ("source__exclude", ["public.log"]), ("debezium", {"url": "http://h"}),
        ("sinks__search", {"kind": "opensearch", "url": "http://h", "replicas": 2}),
        ("views__orders", {"sql": "orders.sql", "post": "m:f"}), ("spark__conf", {"spark.ui.enabled": "false"}),
    ],
)  # fmt: skip
def test_what_the_settings_take_the_schema_takes(path: str, value: object) -> None:
    good = document(**{path: value})
    parse_settings(good)
    assert faults(SCHEMA, good) == []


@given(st.from_regex(r"\A ?[0-9]{1,3}(\.[0-9])? ?(ms|s|m|h|d|w|B|kB|MB|GB|TB)?\Z"))
def test_durations_and_sizes_have_one_form(text: str) -> None:
    for path in ("log__min_compaction_lag", "limits__lag_bytes"):
        made = document(**{path: text})
        try:
            parse_settings(made)
        except ConfigError:
            assert faults(SCHEMA, made), path
        else:
            assert faults(SCHEMA, made) == [], path
