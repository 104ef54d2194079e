"""``[source.topics]`` is carried out as it is written, or refused in one sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import ConfigError
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from connectors.debezium.config import connector_config, require_nameable, unnameable
from connectors.debezium.databases import topic_of, usual_topic


def settings(tables: list[str], topics: dict[str, str], kind: str = "debezium", **debezium: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": kind, "dsn": "host=h user=cdc dbname=app", "tables": tables, "topics": topics},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": {"database_password": "${env:PASSWORD}", **debezium},
        }
    )


def in_sequence(config: dict[str, str], topic: str) -> str:
    """As Kafka Connect does it: each router sees what the one before it made."""
    for name in filter(None, config.get("transforms", "").split(",")):
        if re.fullmatch(config[f"transforms.{name}.regex"], topic) is not None:
            topic = config[f"transforms.{name}.replacement"]
    return topic


TABLES = ("crm.a", "crm.b", "crm.c", "crm.a.b", "crm.shop")
OTHERS = ("__debezium-heartbeat.shop", "shop", "shop.transaction", "shop.message", "shop.crm.free", "shop.signals")
_TOPIC = st.sampled_from([*(f"shop.{table}" for table in TABLES), "own.x", "own.y", "own.z", "shop.crm.free", *OTHERS])


@given(st.dictionaries(st.sampled_from(TABLES), _TOPIC), st.sampled_from(["mariadb", "postgres", "sqlserver"]))
def test_h196_a_table_gets_the_topic_it_is_given_or_is_refused(topics: dict[str, str], database: str) -> None:
    known = settings(list(TABLES), topics, database=database)
    if list(unnameable(known)):
        with pytest.raises(ConfigError):
            connector_config(known)
        chosen = list(topics.values())
        assert len({*chosen}) < len(chosen) or not {*chosen} <= {"own.x", "own.y", "own.z", "shop"}
        return
    config = connector_config(known)
    for table in TABLES:
        assert in_sequence(config, usual_topic(known, table)) == topic_of(known, table)
    for topic in OTHERS:
        assert in_sequence(config, topic) == topic


@pytest.mark.parametrize(
    ("tables", "topics", "words"),
    [
        (["crm.a", "crm.b"], {"crm.a": "x", "crm.b": "x"}, "crm.a and crm.b would share the topic x"),
        (["crm.a", "crm.b"], {"crm.a": "shop.crm.b"}, "crm.a and crm.b would share the topic shop.crm.b"),
        (["crm.*"], {"crm.a": "x", "crm.b": "x"}, "would share the topic x"),
        (["crm.a"], {"crm.a": "shop.state"}, "the reserved topic shop.state"),
        (["crm.a"], {"crm.a": "shop.signals"}, "shop.signals, and that name is Debezium's to give"),
        (["crm.a"], {"crm.a": "__debezium-heartbeat.shop"}, "that name is Debezium's to give"),
        (["crm.a b", "crm.a_b"], {"crm.a b": "x"}, "crm.a b and crm.a_b would share the topic shop.crm.a_b"),
        (["crm.a b", "crm.a_b"], {"crm.a b": "x", "crm.a_b": "y"}, "would share the topic shop.crm.a_b"),
        (["crm.*"], {"crm.a": "shop.crm.b"}, "that name is Debezium's to give"),
        (["crm.a", "crm.b"], {"crm.a": "shop.crm.b", "crm.b": "x"}, "that name is Debezium's to give"),
        (["crm.a", "crm.b"], {"crm.a": "shop.crm.b", "crm.b": "shop.crm.a"}, "that name is Debezium's to give"),
    ],
)
def test_h196_topics_that_no_router_can_give_are_refused(tables: list[str], topics: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:
        require_nameable(settings(tables, topics))
    assert refused.value.hint


@pytest.mark.parametrize(
    ("tables", "topics"),
    [
        (["crm.a"], {"crm.a": "x", "crm.b": "x"}),
        (["crm.*"], {"crm.a": "crm.a"}),
        (["crm.a b", "crm.c"], {"crm.a b": "x", "crm.a_b": "x"}),
    ],
)
def test_h196_topics_that_can_be_given_pass(tables: list[str], topics: dict[str, str]) -> None:
    require_nameable(settings(tables, topics))


def test_h196_tables_that_a_pattern_was_found_to_meet() -> None:
    known = settings(["crm.*"], {})
    assert list(unnameable(known)) == []
    met = [TableName("crm", "a b"), TableName("crm", "a_b")]
    assert next(problem for problem, _ in unnameable(known, met)) == (
        "the tables crm.a b and crm.a_b would share the topic shop.crm.a_b"
    )


def test_h196_names_written_alike_concern_debezium_alone() -> None:
    known = settings(["crm.a b", "crm.a_b"], {"crm.a b": "x", "crm.a_b": "__debezium-heartbeat.shop"}, "postgres")
    require_nameable(known)
    with pytest.raises(ConfigError, match="would share the topic x"):
        require_nameable(settings(["crm.a", "crm.b"], {"crm.a": "x", "crm.b": "x"}, "postgres"))
