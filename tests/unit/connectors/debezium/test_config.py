"""The connector's configuration, from the settings alone."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.process.errors import ConfigError, Exit
from cdc.settings.model import Settings, parse
from cdc.wiring import open_source
from cdc.wiring.sinks import Freshness
from connectors.debezium.config import changed_options, connector_config, may_hold_debezium, reselects
from connectors.debezium.connector import Connector
from connectors.debezium.databases import described_address, table_list
from connectors.debezium.secrecy import masked

REFERENCE = "${file:/secrets/db.properties:password}"


def settings(debezium: dict[str, Any] | None = None, **source: Any) -> Settings:
    return parse(
        {
            "name": "shop",
            "source": {
                "kind": "debezium",
                "dsn": "host=db.example.com port=5433 dbname=shop user=cdc",
                "tables": ["public.orders", "public.customers"],
                **source,
            },
            "log": {"bootstrap_servers": "kafka:9092", "partitions": 6, "replication_factor": 3},
            "debezium": {"database_password": REFERENCE, **(debezium or {})},
        }
    )


def test_postgres_gets_our_slot_publication_topics_and_encodings() -> None:
    config = connector_config(settings(slot="my_slot", publication="my_pub"))
    assert config["connector.class"] == "io.debezium.connector.postgresql.PostgresConnector"
    assert (config["database.hostname"], config["database.port"]) == ("db.example.com", "5433")
    assert (config["database.user"], config["database.dbname"]) == ("cdc", "shop")
    assert config["database.password"] == REFERENCE
    assert (config["slot.name"], config["publication.name"]) == ("my_slot", "my_pub")
    assert config["plugin.name"] == "pgoutput"
    assert config["topic.prefix"] == "shop"
    assert (config["decimal.handling.mode"], config["time.precision.mode"]) == ("string", "isostring")
    assert config["interval.handling.mode"] == "string"
    assert config["tombstones.on.delete"] == "true"


def test_the_debezium_encoding_keeps_debeziums_defaults() -> None:
    wanted = settings()
    config = connector_config(wanted.model_copy(update={"log": wanted.log.model_copy(update={"encoding": "debezium"})}))
    assert not {"decimal.handling.mode", "time.precision.mode", "interval.handling.mode"} & config.keys()


def test_h62_topics_are_compacted_and_keep_deletes_for_replay() -> None:
    config = connector_config(settings())
    assert config["topic.creation.default.cleanup.policy"] == "compact"
    assert config["topic.creation.default.delete.retention.ms"] == str(7 * 86400 * 1000)
    assert config["topic.creation.default.min.compaction.lag.ms"] == "60000"
    assert config["topic.creation.default.partitions"] == "6"
    assert config["topic.creation.default.replication.factor"] == "3"
    assert config["topic.creation.heartbeat.partitions"] == "1"
    # A truncate's null key would fail the task on a compacted topic.
    assert config["skipped.operations"] == "t"


def test_h56_nothing_takes_the_place_of_javas_own_partitioner() -> None:
    config = connector_config(settings())
    assert not [option for option in config if "partitioner" in option]
    assert config["producer.override.acks"] == "all"


def test_h125_a_placeholder_that_no_sink_knows_is_refused() -> None:
    ours = {"options": {"unavailable.value.placeholder": "__debezium_unavailable_value"}}
    assert connector_config(settings(ours))["unavailable.value.placeholder"] == "__debezium_unavailable_value"
    with pytest.raises(ConfigError, match=r"unavailable\.value\.placeholder"):
        connector_config(settings({"options": {"unavailable.value.placeholder": "hex:00"}}))


def test_options_of_the_user_win() -> None:
    config = connector_config(settings({"options": {"database.hostname": "postgres", "slot.failover": "true"}}))
    assert config["database.hostname"] == "postgres"
    assert config["slot.failover"] == "true"


def test_signals_go_through_a_topic_and_need_no_table() -> None:
    config = connector_config(settings())
    assert config["signal.enabled.channels"] == "kafka"
    assert config["signal.kafka.topic"] == "shop.signals"
    assert config["read.only"] == "true"
    with_table = connector_config(settings({"signal_table": "public.signals"}))
    assert with_table["signal.data.collection"] == "public.signals"
    assert "public\\.signals" in with_table["table.include.list"]
    assert "read.only" not in with_table


def test_tls_of_the_dsn_reaches_the_connector() -> None:
    config = connector_config(settings(dsn="host=h dbname=d user=u sslmode=verify-full sslrootcert=/ca.pem"))
    assert config["database.sslmode"] == "verify-full"
    assert config["database.sslrootcert"] == "/ca.pem"


def test_a_renamed_topic_is_routed() -> None:
    config = connector_config(settings(topics={"public.order items": "items"}))
    assert config["transforms"] == "topic1"
    assert config["transforms.topic1.regex"] == "shop\\.public\\.order_items"
    assert config["transforms.topic1.replacement"] == "items"


def test_a_password_only_cdc_can_read_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError) as refusal:
        connector_config(settings({"database_password": None}, password="env:PGPASSWORD"))
    assert "database_password" in refusal.value.message
    assert "${file:" in refusal.value.hint


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("host=h dbname=d user=u password=x", "holds a password"),
        ("dbname=d user=u", "no host"),
        ("host=h dbname=d", "no user"),
        ("host=h user=u", "no database"),
        ("what is this", "key=value"),
    ],
)
def test_a_dsn_that_does_not_do_is_refused(dsn: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        connector_config(settings(dsn=dsn))


def test_without_a_section_the_hint_says_how() -> None:
    document = settings().model_copy(update={"debezium": None})
    with pytest.raises(ConfigError, match="no \\[debezium\\] section"):
        connector_config(document)


def _java_matches(expressions: str, table: str) -> bool:
    """Debezium's matching: the list parted at commas, each anchored, without regard to case unless (?-i)."""
    found = False
    for one in expressions.split(","):
        assert one.startswith("(?-i)")
        # Java's (?-i) at the start is what Python does anyway; \\x2c reads alike in both.
        found = found or re.fullmatch(one.removeprefix("(?-i)"), table) is not None
    return found


_names = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="*\x00"), min_size=1, max_size=20)


@given(_names, _names)
def test_a_table_list_matches_its_tables_and_no_other(one: str, other: str) -> None:
    expressions = table_list([f"public.{one}"])
    assert _java_matches(expressions, f"public.{one}")
    assert _java_matches(expressions, f"public.{other}") == (one == other)


def test_a_pattern_leaves_out_what_is_excluded() -> None:
    expressions = table_list(["public.*"], exclude=["public.secret", "public.tmp_*"])
    assert _java_matches(expressions, "public.orders")
    assert _java_matches(expressions, "public.secrets")
    assert not _java_matches(expressions, "public.secret")
    assert not _java_matches(expressions, "public.tmp_1")
    assert not _java_matches(expressions, "audit.orders")


def test_a_diff_has_the_changed_options_only_and_no_secret() -> None:
    wanted = {"a": "1", "b": "2", "database.password": REFERENCE}
    running = {"name": "shop", "a": "1", "b": "3", "c": "4", "database.password": "hunter2"}
    assert changed_options(wanted, running) == {
        "b": ("3", "2"),
        "c": ("4", None),
        "database.password": ("***", REFERENCE),
    }
    assert masked("database.password", REFERENCE + "hunter2") == "***"


def mysql(database: str, **source: Any) -> Settings:
    place = {"dsn": "host=h user=cdc", "tables": ["shop.orders", "shop.lines", "crm.people"], **source}
    return settings({"database": database}, **place)


@pytest.mark.parametrize(
    ("database", "plugin"),
    [
        ("mysql", "io.debezium.connector.mysql.MySqlConnector"),
        ("mariadb", "io.debezium.connector.mariadb.MariaDbConnector"),
    ],
)
def test_the_binlog_readers(database: str, plugin: str) -> None:
    config = connector_config(mysql(database))
    assert config["connector.class"] == plugin
    assert config["database.port"] == "3306"
    assert config["database.include.list"] == "(?-i)shop,(?-i)crm"
    assert config["schema.history.internal.kafka.topic"] == "shop.schema-history"
    # With those of captured tables alone the first change of a table that is added later stops the connector.
    assert config["schema.history.internal.store.only.captured.tables.ddl"] == "false"
    assert int(config["database.server.id"]) >= 10_000
    assert not any(option.startswith(("slot.", "publication.")) for option in config)
    assert config["time.precision.mode"] == "adaptive_time_microseconds"


def test_a_binlog_table_names_its_database() -> None:
    with pytest.raises(ConfigError, match="lacks its schema"):
        connector_config(mysql("mariadb", tables=["orders"]))


def test_mongodb() -> None:
    place = {"dsn": "mongodb://cdc%40x@a:1,b:2/?replicaSet=rs0", "tables": ["shop.orders"]}
    config = connector_config(settings({"database": "mongodb"}, **place))
    assert config["mongodb.connection.string"] == "mongodb://a:1,b:2/?replicaSet=rs0"
    assert config["mongodb.user"] == "cdc@x"
    assert config["mongodb.password"] == REFERENCE
    assert config["capture.mode"] == "change_streams_update_full"
    assert config["json.serialization.mode"] == "strict"
    assert config["collection.include.list"] == "(?-i)shop\\.orders"
    assert "database.password" not in config


@pytest.mark.parametrize(
    ("dsn", "words"),
    [("host=h", "not a MongoDB"), ("mongodb://u:p@h/", "holds a password")],
)
def test_a_mongodb_address_that_does_not_do_is_refused(dsn: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        connector_config(settings({"database": "mongodb"}, dsn=dsn, tables=["a.b"]))


def mongodb(**options: str) -> Settings:
    place = {"dsn": "mongodb://a/", "tables": ["shop.orders"]}
    names = {name.replace("_", "."): value for name, value in options.items()}
    return settings({"database": "mongodb", "options": names}, **place)


@pytest.mark.parametrize("mode", ["change_streams", "change_streams_with_pre_image"])
def test_updates_without_their_document_are_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match="stores take whole documents"):
        connector_config(mongodb(capture_mode=mode))
    whole = "change_streams_update_full_with_pre_image"
    assert connector_config(mongodb(capture_mode=whole))["capture.mode"] == whole


def test_oracle() -> None:
    place = {"dsn": "host=h dbname=ORCLCDB user=c##cdc", "tables": ["SHOP.ORDERS"]}
    config = connector_config(settings({"database": "oracle", "options": {"database.pdb.name": "ORCLPDB1"}}, **place))
    assert config["connector.class"] == "io.debezium.connector.oracle.OracleConnector"
    assert (config["database.port"], config["database.dbname"]) == ("1521", "ORCLCDB")
    assert config["database.pdb.name"] == "ORCLPDB1"
    assert config["table.include.list"] == "(?-i)SHOP\\.ORDERS"
    assert "read.only" not in config
    with pytest.raises(ConfigError, match="signal table"):
        connector_config(settings({"database": "oracle", "signal_table": "SHOP.S"}, **place))


def test_sql_server() -> None:
    place = {"dsn": "host=h dbname=shop user=cdc sslmode=disable", "tables": ["dbo.orders"]}
    config = connector_config(settings({"database": "sqlserver"}, **place))
    assert config["connector.class"] == "io.debezium.connector.sqlserver.SqlServerConnector"
    assert (config["database.port"], config["database.names"]) == ("1433", "shop")
    assert config["database.encrypt"] == "false"
    assert "read.only" not in config


@pytest.mark.parametrize("command", ["run", "snapshot"])
def test_the_native_capture_keeps_off_a_pipeline_of_debeziums(command: str, tmp_path: Path) -> None:
    file = tmp_path / "cdc.toml"
    file.write_text(
        'name = "shop"\n[source]\nkind = "debezium"\ndsn = "host=127.0.0.1 port=1"\ntables = ["public.a"]\n'
        '[log]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "cdc", "--config", str(file), command], capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.CONFIG
    assert f"kind is debezium, so cdc {command} has nothing to do" in done.stderr


def test_a_native_pipeline_is_not_deployed_beside_itself() -> None:
    with pytest.raises(ConfigError, match="two writers"):
        Connector(settings(kind="postgres")).deploy()


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("host=h user=cdc", "h"),
        ("host=h port=3306 user=cdc dbname=shop", "h:3306/shop"),
        ("mongodb://cdc@a:1,b:2/?replicaSet=r", "a:1,b:2"),
    ],
)
def test_h130_an_address_is_shown_without_a_login(dsn: str, shown: str) -> None:
    assert described_address(settings(dsn=dsn)) == shown


@pytest.mark.parametrize("database", ["mysql", "mariadb", "mongodb", "oracle", "sqlserver"])
def test_h130_no_other_database_is_logged_in_to_as_postgres(database: str) -> None:
    other = settings({"database": database})
    with pytest.raises(ConfigError, match=f"source is {database}, which cannot be asked"):
        open_source(other, application_name="cdc verify")
    with Freshness(other) as freshness, pytest.raises(ConfigError, match="cdc wait asks Postgres"):
        freshness.wait("cache", 1)


RESELECT = "io.debezium.processors.reselect.ReselectColumnsPostProcessor"


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({}, False),
        ({"r.type": "com.example.Other"}, False),
        ({"r.type": RESELECT}, True),
        ({"r.type": RESELECT, "r.reselect.null.values": "false"}, False),
    ],
)
def test_the_options_tell_whether_a_connector_asks_for_nulls(options: dict[str, str], asks: bool) -> None:
    assert reselects(settings({"options": options})) is asks


def test_topics_have_debeziums_records_or_a_handover_is_possible() -> None:
    writes = settings()
    native = writes.model_copy(update={"source": writes.source.model_copy(update={"kind": "postgres"})})
    assert may_hold_debezium(writes)
    assert may_hold_debezium(native)
    assert not may_hold_debezium(native.model_copy(update={"debezium": None}))
