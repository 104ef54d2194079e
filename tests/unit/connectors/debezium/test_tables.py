"""Deploy, connector, signals and sinks mean the same tables and topics by the same settings."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import ConfigError, UsageError
from cdc.settings.model import Settings, parse
from connectors.debezium.config import connector_config, unnameable
from connectors.debezium.databases import captures, includes, is_pattern, named_tables, topic_of, usual_topic
from connectors.debezium.snapshots import require_captured, require_incremental, require_running
from connectors.debezium.status import ConnectorStatus, TaskStatus

DATABASES = ("postgres", "mysql", "mariadb", "mongodb", "oracle", "sqlserver")


def settings(
    tables: list[str], exclude: list[str] | None = None, topics: dict[str, str] | None = None, **debezium: Any
) -> Settings:
    mongodb = debezium.get("database") == "mongodb"
    dsn = "mongodb://cdc@h/?replicaSet=r" if mongodb else "host=h user=cdc dbname=app"
    return parse(
        {
            "name": "shop",
            "source": {
                "kind": "debezium",
                "dsn": dsn,
                "tables": tables,
                "exclude": exclude or [],
                "topics": topics or {},
            },
            "log": {"bootstrap_servers": "127.0.0.1:9092"},
            "debezium": {"database_password": "${env:PASSWORD}", **debezium},
        }
    )


def debezium_writes_to(config: dict[str, str], usual: str) -> str:
    """The usual topic after the generated routers."""
    for name in filter(None, config.get("transforms", "").split(",")):
        if re.fullmatch(config[f"transforms.{name}.regex"], usual) is not None:
            usual = config[f"transforms.{name}.replacement"]
    return usual


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize(
    ("tables", "exclude", "topics"),
    [
        (["crm.a"], [], {}),
        (["crm.a", "crm.b"], [], {"crm.b": "moved"}),
        (["crm.*"], [], {}),
        (["crm.*"], ["crm.b"], {}),
        (["crm.*"], ["crm.b*"], {}),
        (["crm.*"], [], {"crm.a": "moved"}),
        (["crm.*", "crm.a"], [], {"crm.a": "moved"}),
        (["crm.*"], ["crm.a"], {"crm.a": "moved"}),
        (["crm.b*", "hr.*"], ["hr.a"], {}),
        (["crm.a b"], [], {}),
        (["crm.*"], ["crm.a b"], {}),
        (["crm.a *"], [], {}),
        (["crm.*"], [], {"crm.a b": "moved"}),
        (['"crm"."b*"'], [], {}),
        (["crm.*"], ['"crm"."a b"'], {'"crm"."b1"': "moved"}),
    ],
)
def test_h129_what_is_captured_has_a_topic_that_sinks_know(
    database: str, tables: list[str], exclude: list[str], topics: dict[str, str]
) -> None:
    known = settings(tables, exclude, topics, database=database)
    if database != "postgres" and any(map(is_pattern, tables)):
        with pytest.raises(ConfigError, match=f"is a pattern, and a {database} source is not asked") as refused:
            connector_config(known)
        assert refused.value.hint == "name each table"
        return
    config = connector_config(known)
    for table in ("crm.a", "crm.b", "crm.b1", "crm.b*", "crm.a b", "hr.a", "hr.b", "other.a"):
        assert includes(config, table) == captures(known, table), table
        assert topic_of(known, table) == debezium_writes_to(config, usual_topic(known, table))


def test_sql_servers_topics_have_the_database_before() -> None:
    assert usual_topic(settings(["dbo.a"], database="sqlserver"), "dbo.a") == "shop.app.dbo.a"
    assert usual_topic(settings(["dbo.a"]), "dbo.a") == "shop.dbo.a"


def test_named_tables_are_those_that_no_pattern_means() -> None:
    known = settings(["crm.a", "crm.*", '"crm"."b*"', "crm.a"])
    assert [str(table) for table in named_tables(known)] == ["crm.a", "crm.b*"]


_PART = st.text(alphabet='ab _.-*"é', min_size=1, max_size=4).filter(lambda text: text.strip("."))


@given(st.lists(_PART, min_size=1, max_size=3), st.lists(_PART, max_size=2), _PART)
def test_h129_every_name_is_included_as_it_is_captured(tables: list[str], exclude: list[str], name: str) -> None:
    known = settings([f"crm.{text}" for text in tables], [f"crm.{text}" for text in exclude])
    if list(unnameable(known)):
        return
    assert includes(connector_config(known), f"crm.{name}") == captures(known, f"crm.{name}")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("topic.prefix", "another"),
        ("topic.delimiter", "_"),
        ("unavailable.value.placeholder", "none"),
        ("key.converter", "io.confluent.connect.avro.AvroConverter"),
        ("value.converter", "io.debezium.converters.CloudEventsConverter"),
        ("table.include.list", "crm.b"),
        ("collection.exclude.list", "crm.b"),
    ],
)
def test_h129_options_that_sinks_cannot_follow_are_refused(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(option)):
        connector_config(settings(["crm.a"], options={option: value}))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("binary.handling.mode", "hex"),
        ("binary.handling.mode", "base64-url-safe"),
        ("time.precision.mode", "Structured"),
        ("value.converter.decimal.format", "NUMERIC"),
        ("key.converter.decimal.format", "NUMERIC"),
        ("topic.naming.strategy", "com.example.Mine"),
        ("schema.include.list", "public"),
        ("skipped.operations", "t, d"),
        ("skipped.operations", "u"),
    ],
)
def test_h181_options_that_make_stores_wrong_in_silence(option: str, value: str) -> None:
    """Each makes records that look as if they could be read: hex is base64 of other bytes."""
    with pytest.raises(ConfigError, match=rf"^\[debezium.options\] {option}: "):
        connector_config(settings(["crm.a"], options={option: value}))


def test_h181_values_that_are_read_pass() -> None:
    options = {
        "binary.handling.mode": "base64",
        "time.precision.mode": "nanoseconds",
        "topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy",
        "skipped.operations": "none",
    }
    assert options.items() <= connector_config(settings(["crm.a"], options=options)).items()


FLAT = {"transforms": "mask,flat", "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState"}
HANDLING = "transforms.flat.delete.tombstone.handling.mode"


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("event.processing.failure.handling.mode", {"event.processing.failure.handling.mode": "Skip"}),
        ("inconsistent.schema.handling.mode", {"inconsistent.schema.handling.mode": "warn"}),
        ("errors.tolerance", {"errors.tolerance": "all"}),
        (HANDLING, FLAT | {HANDLING: "drop"}),
        ("tombstones.on.delete", FLAT | {"tombstones.on.delete": "false"}),
        ("tombstones.on.delete", FLAT | {HANDLING: "tombstone", "tombstones.on.delete": "false"}),
    ],
)
def test_h587_options_by_which_changes_are_missing(option: str, options: dict[str, str]) -> None:
    """The connector says RUNNING, and no record says that one was left out."""
    with pytest.raises(ConfigError, match=rf"^\[debezium.options\] {option}: stores would (lack|keep) ") as refused:
        connector_config(settings(["crm.a"], options=options))
    assert refused.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"event.processing.failure.handling.mode": "fail", "errors.tolerance": "none"},
        {"tombstones.on.delete": "false"},
        FLAT | {HANDLING: "rewrite", "tombstones.on.delete": "false"},
        FLAT | {HANDLING: "delete-to-tombstone", "tombstones.on.delete": "false"},
        FLAT | {HANDLING: "rewrite-with-tombstone", "tombstones.on.delete": "true"},
    ],
)
def test_h587_options_by_which_no_change_is_missing(options: dict[str, str]) -> None:
    assert options.items() <= connector_config(settings(["crm.a"], options=options)).items()


@pytest.mark.parametrize(
    ("option", "readable", "own"),
    [
        ("decimal.handling.mode", "string", "precise"),
        ("time.precision.mode", "isostring", "adaptive"),
        ("interval.handling.mode", "string", "numeric"),
    ],
)
def test_h587_without_schemas_values_are_of_the_encoding(option: str, readable: str, own: str) -> None:
    """A decimal's bytes went into the stores as they came, as a text, where sinks know it by the catalog alone."""
    known = settings(["crm.a"], database="postgres", schemas=False, options={option: readable})
    other = known.model_copy(update={"log": known.log.model_copy(update={"encoding": "debezium"})})
    assert connector_config(known)[option] == readable
    with pytest.raises(ConfigError, match=f"without schemas nobody tells the sinks of {readable}"):
        connector_config(other)
    with pytest.raises(ConfigError, match=f"without schemas nobody tells the sinks of {own}"):
        connector_config(settings(["crm.a"], database="postgres", schemas=False, options={option: own}))
    assert connector_config(settings(["crm.a"], database="postgres", options={option: own}))[option] == own


def test_h129_options_that_say_what_is_agreed_pass() -> None:
    options = {"topic.prefix": "shop", "topic.delimiter": ".", "value.converter.schemas.enable": "true"}
    assert connector_config(settings(["crm.a"], options=options))["topic.prefix"] == "shop"


@pytest.mark.parametrize("database", [name for name in DATABASES if name != "postgres"])
def test_h129_without_embedded_schemas_only_postgres_has_types(database: str) -> None:
    with pytest.raises(ConfigError, match="schemas = false"):
        connector_config(settings(["crm.a"], database=database, schemas=False))
    assert connector_config(settings(["crm.a"], database="postgres", schemas=False))


def test_h129_own_transforms_do_not_undo_a_renamed_topic() -> None:
    config = connector_config(settings(["crm.a"], topics={"crm.a": "moved"}, options={"transforms": "mask"}))
    assert config["transforms"] == "mask,topic1"


def test_h129_a_signal_table_is_no_table_of_the_stores() -> None:
    known = settings(["crm.*"], signal_table="crm.signals")
    assert not captures(known, "crm.signals")
    assert captures(settings(["crm.signals"], signal_table="crm.signals"), "crm.signals")


def test_h128_a_table_that_is_not_captured_is_refused() -> None:
    known = settings(["crm.*"], ["crm.b"])
    require_captured(known, ["crm.a"])
    for table in ("crm.b", "hr.a"):
        with pytest.raises(UsageError, match="not among the captured tables"):
            require_captured(known, ["crm.a", table])


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("table", [None, "crm.signals"])
def test_h128_a_snapshot_that_nobody_would_take_is_refused(database: str, table: str | None) -> None:
    signals = f"APP.{table}" if table is not None and database == "oracle" else table
    known = settings(["crm.a"], database=database, signal_table=signals)
    config = connector_config(known)
    if table is not None or database in ("postgres", "mysql", "mariadb"):
        require_incremental(known, config)
    else:
        with pytest.raises(ConfigError, match="without a signal table"):
            require_incremental(known, config)
    without = {name: value for name, value in config.items() if name not in ("read.only", "signal.data.collection")}
    with pytest.raises(ConfigError, match="without a signal table"):
        require_incremental(known, without)


@pytest.mark.parametrize(
    ("state", "task", "words"),
    [
        ("STOPPED", None, "is stopped and takes no signals"),
        ("PAUSED", "PAUSED", "is paused and takes no signals"),
        ("RUNNING", "FAILED", "has failed and takes no signals"),
        ("RUNNING", "RUNNING", None),
    ],
)
def test_h128_a_signal_to_nobody_is_refused(state: str, task: str | None, words: str | None) -> None:
    tasks = () if task is None else (TaskStatus(task=0, state=task, worker="w", trace="x" * (task == "FAILED")),)
    status = ConnectorStatus(name="shop", state=state, worker="w", tasks=tasks)
    if words is None:
        require_running(status)
        return
    with pytest.raises(ConfigError, match=words):
        require_running(status)
