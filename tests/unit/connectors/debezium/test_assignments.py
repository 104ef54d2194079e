"""An assignment of topics is carried out as it is written, or refused in one sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import ConfigError
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from connectors.debezium.assignments import (
    assignment_problems,
    connector_topics,
    require_assignable,
)
from connectors.debezium.captured_tables import topic_of, usual_topic
from connectors.debezium.connector_config import connector_config


def settings(tables: list[str], topics: dict[str, str], kind: str = "debezium", **debezium: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": kind, "dsn": "host=h user=cdc dbname=app", "tables": tables, "topics": topics},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": {"database": "mariadb", "database_password": "${env:PASSWORD}", **debezium},
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
_TOPIC = st.sampled_from([*(f"shop.{table}" for table in TABLES), "own.x", "own.y", "shop.crm.free"])


@given(st.dictionaries(st.sampled_from(TABLES), _TOPIC), st.sampled_from(["mariadb", "postgres", "sqlserver"]))
def test_h196_a_table_gets_the_topic_it_is_given_or_is_refused(topics: dict[str, str], database: str) -> None:
    known = settings(list(TABLES), topics, database=database)
    config = connector_config(known)
    if list(assignment_problems(known)):
        usual = [topic_of(known, table) for table in TABLES]
        assert len({*usual}) < len(usual) or {*topics.values()} & {usual_topic(known, table) for table in TABLES}
        return
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
        (["crm.a"], {"crm.a": "shop.signals"}, "shop.signals, which the connector keeps for itself"),
        (["crm.a"], {"crm.a": "__debezium-heartbeat.shop"}, "which the connector keeps for itself"),
        (["crm.a b", "crm.a_b"], {"crm.a b": "x"}, "crm.a b and crm.a_b alike, shop.crm.a_b"),
        (["crm.a b", "crm.a_b"], {"crm.a b": "x", "crm.a_b": "y"}, "cannot part them"),
        (["crm.*"], {"crm.a": "shop.crm.b"}, "which is that of crm.b where a pattern meets it"),
        (["crm.a", "crm.b"], {"crm.a": "shop.crm.b", "crm.b": "x"}, "shop.crm.b, which is the usual one of crm.b"),
        (["crm.a", "crm.b"], {"crm.a": "shop.crm.b", "crm.b": "shop.crm.a"}, "which is the usual one of"),
    ],
)
def test_h196_topics_that_no_router_can_give_are_refused(tables: list[str], topics: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:
        require_assignable(settings(tables, topics), asked=False)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("tables", "topics"),
    [
        (["crm.a"], {"crm.a": "x", "crm.b": "x"}),
        (["crm.a"], {"crm.a": "shop.crm.b"}),
        (["crm.*"], {"crm.a": "shop.crm.a"}),
        (["crm.a b", "crm.c"], {"crm.a b": "x", "crm.a_b": "x"}),
    ],
)
def test_h196_topics_that_can_be_given_pass(tables: list[str], topics: dict[str, str]) -> None:
    require_assignable(settings(tables, topics), asked=False)


def test_h196_tables_that_a_pattern_was_found_to_meet() -> None:
    known = settings(["crm.*"], {"crm.a": "shop.crm.b"}, database="postgres")
    assert list(assignment_problems(known)) == []
    met = [TableName("crm", "a"), TableName("crm", "b")]
    assert [problem for problem, _ in assignment_problems(known, met)] == [
        "the tables crm.a and crm.b would share the topic shop.crm.b"
    ]


def test_h196_names_written_alike_concern_debezium_alone() -> None:
    known = settings(["crm.a b", "crm.a_b"], {"crm.a b": "x", "crm.a_b": "__debezium-heartbeat.shop"}, "postgres")
    require_assignable(known)


def test_h196_options_name_topics_of_the_connectors_own() -> None:
    options = {"topic.heartbeat.prefix": "beat", "topic.transaction": "tx", "signal.kafka.topic": "ask"}
    assert {"beat.shop", "shop.tx", "ask"} <= connector_topics(settings(["crm.a"], {}, options=options))
