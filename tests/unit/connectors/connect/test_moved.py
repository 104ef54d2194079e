"""A deploy knows the tables whose records are in another topic than the settings name."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.errors import ConfigError
from cdc.moved_topics import MovedTopic
from cdc.settings import Settings, parse
from cdc.state import TopicsState
from cdc.topic import TableName
from connectors.connect.moved import begins_anew, moved_tables, require_filled
from connectors.connect.published import Published, with_unread
from connectors.connect.topics import named_tables
from connectors.debezium.connector_config import connector_config
from connectors.debezium.connector_status import ConnectorStatus, TaskStatus

MOVED = [MovedTopic("crm.a", "own.x", "own.y")]


def settings(tables: list[str], topics: dict[str, str], **debezium: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": tables, "topics": topics},
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": {"database_password": "${env:PASSWORD}", **debezium},
        }
    )


def noted(**tables: str) -> TopicsState:
    return TopicsState(cluster_id="k", tables={f"crm.{table}": topic for table, topic in tables.items()})


def test_h197_by_the_notes_whatever_the_connector_runs_with() -> None:
    known = settings(["crm.a", "crm.b"], {"crm.a": "own.y"})
    assert moved_tables(known, noted(a="own.x", b="shop.crm.b"), {}, {}) == MOVED
    assert moved_tables(known, None, {}, {}) == []
    assert moved_tables(settings(["crm.b"], {"crm.a": "own.y"}), noted(a="own.x"), {}, {}) == []


def test_h197_by_the_routers_that_run_where_they_lead_elsewhere() -> None:
    """A chain of a former version wrote to a topic that nobody noted."""
    known = settings(["crm.a"], {"crm.a": "own.y"})
    running = connector_config(settings(["crm.a"], {"crm.a": "own.x"}))
    assert moved_tables(known, noted(a="own.y"), running, {"own.x": 1}) == MOVED
    assert moved_tables(known, noted(a="own.y"), connector_config(known), {"own.x": 1}) == []


def test_h211_routers_that_never_ran_move_no_table() -> None:
    """Of a deploy that was refused behind making the connector: the name that is put back is where the rows are."""
    back = settings(["crm.a"], {"crm.a": "own.x"})
    refused = connector_config(settings(["crm.a"], {"crm.a": "own.y"}))
    assert moved_tables(back, noted(a="own.x"), refused, {"own.x": 1}) == []
    assert moved_tables(back, noted(a="own.x"), refused, {"own.x": 1, "own.y": 1}) == [
        MovedTopic("crm.a", "own.y", "own.x")
    ]


def test_h197_a_table_of_a_pattern_that_nobody_noted() -> None:
    known = settings(["crm.*"], {"crm.a": "own.y"}, database="mariadb")
    assert moved_tables(known, noted(), {}, {"shop.crm.a": 1}) == [MovedTopic("crm.a", "shop.crm.a", "own.y")]
    assert moved_tables(known, noted(), {}, {}) == []
    assert moved_tables(known, noted(), connector_config(known), {"shop.crm.a": 1, "own.y": 1}) == []
    plain = settings(["crm.*"], {}, database="mariadb")
    back = moved_tables(plain, noted(), connector_config(known), {"own.y": 1})
    assert back == [MovedTopic("crm.a", "own.y", "shop.crm.a")]
    assert named_tables(known) == {TableName("crm", "a"): "own.y"}
    assert named_tables(settings(["crm.*"], {"crm.a": "own.y"})) == {}


def test_h197_no_offsets_count_in_a_stopped_connector_alone() -> None:
    """One that runs stores what it has read when it ends."""
    task = TaskStatus(task=0, state="RUNNING", worker="w")
    stopped = ConnectorStatus(name="shop", state="STOPPED", worker="w")
    assert begins_anew(stopped, [])
    assert not begins_anew(stopped, [{"offset": {"lsn": 7}}])
    assert not begins_anew(ConnectorStatus(name="shop", state="STOPPED", worker="w", tasks=(task,)), [])
    assert not begins_anew(ConnectorStatus(name="shop", state="RUNNING", worker="w", tasks=(task,)), [])


def test_h197_a_snapshot_in_part_fills_no_topic() -> None:
    whole = settings(["crm.a"], {"crm.a": "own.y"})
    require_filled(whole, MOVED, begins=True)
    with pytest.raises(ConfigError, match=r"own\.x") as refused:
        require_filled(whole, MOVED, begins=False)
    assert "offsets --reset" in str(refused.value.hint)
    with pytest.raises(ConfigError) as never:
        require_filled(settings(["crm.a"], {"crm.a": "own.y"}, snapshot_mode="no_data"), MOVED, begins=True)
    assert "reset" not in str(never.value.hint)


def test_h197_tables_that_the_connector_never_read() -> None:
    a, b = TableName("crm", "a"), TableName("crm", "b")
    done = Published(tables=(a, b))
    running = connector_config(settings(["crm.a"], {}))
    both = connector_config(settings(["crm.*"], {}))
    assert with_unread(done, noted(a="x", b="y"), both).added == ()
    assert with_unread(done, noted(a="x"), both).added == (b,)
    assert with_unread(done, noted(a="x", b="y"), running).added == (b,)
    assert with_unread(done, noted(a="x", b="y"), None).added == (a, b)
    assert with_unread(done, None, running).added == ()
