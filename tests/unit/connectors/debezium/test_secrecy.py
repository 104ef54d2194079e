"""No secret stands as itself in a configuration, and the connector's own clients of Kafka get theirs by reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cdc.process.errors import ConfigError
from cdc.settings.model import Settings, parse
from connectors.debezium.config import changed_options, connector_config
from connectors.debezium.secrecy import exposes, masked

WORD = "hunter2"
REFERENCE = "${file:/secrets/kafka.properties:password}"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "cdc"}
CLIENTS = ("signal.consumer.", "schema.history.internal.producer.", "schema.history.internal.consumer.")


def settings(
    database: str = "mariadb",
    *,
    client: dict[str, Any] | None = None,
    client_secrets: dict[str, str] | None = None,
    **debezium: Any,
) -> Settings:
    dsn = "mongodb://cdc@h/?replicaSet=r" if database == "mongodb" else "host=h user=cdc dbname=shop"
    return parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": dsn, "tables": ["shop.orders"]},
            "log": {
                "bootstrap_servers": "kafka:9092",
                "client": client or {},
                "client_secrets": client_secrets or {},
            },
            "debezium": {"database": database, "database_password": "${env:PASSWORD}", **debezium},
        }
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("database.password", WORD),
        ("database.password", f"{WORD}${{env:MORE}}"),
        ("signal.consumer.ssl.key.password", WORD),
        ("signal.consumer.ssl.keystore.key", WORD),
        ("signal.consumer.sasl.jaas.config", WORD),
        ("signal.consumer.sasl.jaas.config", f'{MODULE} username="cdc" password="{WORD}";'),
        ("signal.consumer.sasl.jaas.config", f"{MODULE} username='${{env:USER}}' password='{WORD}';"),
        ("value.converter.basic.auth.user.info", f"cdc:{WORD}"),
        ("value.converter.basic.auth.user.info", WORD),
        ("value.converter.schema.registry.url", f"http://cdc:{WORD}@registry:8081"),
        ("mongodb.connection.string", f"mongodb://cdc:{WORD}@a,b/?replicaSet=r"),
        ("mongodb.connection.string", f"mongodb://cdc:p@{WORD}@a,b/"),
        ("mongodb.connection.string", f"mongodb://:{WORD}@a"),
        ("database.url", f"jdbc:oracle:thin:cdc/{WORD}@//db:1521/orcl"),
        ("database.url", f"jdbc:sqlserver://db;user=cdc;password={WORD};x=y"),
        ("database.url", f"jdbc:postgresql://db/shop?user=cdc&password={WORD}"),
        ("transforms.x.api.key", WORD),
        ("driver.trustStorePassword", WORD),
        ("header.converter.aws.access.key", WORD),
    ],
)
def test_h127_a_secret_is_refused_and_never_shown(option: str, value: str) -> None:
    assert exposes(option, value)
    with pytest.raises(ConfigError, match=re.escape(option)) as refusal:
        connector_config(settings(options={option: value}))
    assert WORD not in f"{refusal.value.message} {refusal.value.hint}"
    assert masked(option, value) == "***"
    assert changed_options({}, {option: value}) == {option: ("***", None)}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("database.password", REFERENCE),
        ("signal.consumer.sasl.jaas.config", f'{MODULE} username="cdc" password="{REFERENCE}";'),
        ("signal.consumer.sasl.jaas.config", REFERENCE),
        ("signal.consumer.sasl.jaas.config", 'com.sun.security.auth.module.Krb5LoginModule required keyTab="/k";'),
        ("value.converter.basic.auth.user.info", f"cdc:{REFERENCE}"),
        ("value.converter.basic.auth.credentials.source", "USER_INFO"),
        ("value.converter.schema.registry.url", "http://registry:8081"),
        ("mongodb.connection.string", f"mongodb://cdc:{REFERENCE}@a,b/"),
        ("mongodb.connection.string", "mongodb://cdc@a:27017,b:27017/?replicaSet=r"),
        ("database.url", "jdbc:sqlserver://db:1433;encrypt=true"),
        ("signal.consumer.ssl.keystore.location", "/etc/kafka/client.p12"),
        ("signal.consumer.sasl.oauthbearer.token.endpoint.url", "https://login.example.com/token"),
        ("message.key.columns", "shop.orders:id"),
        ("snapshot.select.statement.overrides.shop.t", "select * from t where token = 'x'"),
    ],
)
def test_h127_a_value_without_a_secret_passes_as_it_is(option: str, value: str) -> None:
    assert connector_config(settings(options={option: value}))[option] == value
    assert masked(option, value) == value


@pytest.mark.parametrize(
    ("database", "clients"),
    [
        ("postgres", CLIENTS[:1]),
        ("mongodb", CLIENTS[:1]),
        ("mysql", CLIENTS),
        ("mariadb", CLIENTS),
        ("oracle", CLIENTS),
        ("sqlserver", CLIENTS),
    ],
)
def test_h127_tls_and_login_reach_signals_and_history(database: str, clients: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("CERTIFICATE", encoding="utf-8")
    client = {**LOGIN, "ssl.ca.location": str(tmp_path / "ca.pem"), "queue.buffering.max.ms": 5}
    secured = settings(
        database,
        client=client,
        client_secrets={"sasl.password": "env:NOT_READ_HERE"},
        kafka_secrets={"sasl.password": REFERENCE},
    )
    config = connector_config(secured)
    for prefix in clients:
        assert {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)} == {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} username="cdc" password="{REFERENCE}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "CERTIFICATE",
        }
    assert not [name for name in config if name.startswith(CLIENTS) and not name.startswith(clients)]


def test_h127_a_client_certificate_has_its_key_by_reference(tmp_path: Path) -> None:
    for name in ("chain.pem", "key.pem"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    client = {
        "security.protocol": "ssl",
        "ssl.certificate.location": str(tmp_path / "chain.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
    }
    with pytest.raises(ConfigError, match=r"needs ssl\.key\.pem"):
        connector_config(settings(client=client))
    config = connector_config(settings(client=client, kafka_secrets={"ssl.key.pem": "${dir:/secrets:key.pem}"}))
    assert config["signal.consumer.ssl.keystore.key"] == "${dir:/secrets:key.pem}"
    assert config["signal.consumer.ssl.keystore.certificate.chain"] == "chain.pem"
    assert "key.pem" not in [value for value in config.values()]


def test_h127_a_secret_that_only_cdc_can_read_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs sasl\.password") as refusal:
        connector_config(settings(client=LOGIN, client_secrets={"sasl.password": "env:X"}))
    assert "[debezium.kafka_secrets]" in refusal.value.hint
    with pytest.raises(ConfigError, match=r"needs sasl\.password") as refusal:
        connector_config(settings(client={**LOGIN, "sasl.password": WORD}))
    assert WORD not in f"{refusal.value.message} {refusal.value.hint}"
    with pytest.raises(ConfigError, match="not a reference") as refusal:
        connector_config(settings(client=LOGIN, kafka_secrets={"sasl.password": WORD}))
    assert WORD not in f"{refusal.value.message} {refusal.value.hint}"


def test_h127_own_words_for_a_client_replace_what_is_generated() -> None:
    options = {f"{prefix}security.protocol": "SASL_PLAINTEXT" for prefix in CLIENTS}
    config = connector_config(settings(client={**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, options=options))
    assert {name: config[name] for name in config if name.startswith(CLIENTS)} == options
    with pytest.raises(ConfigError, match="OAUTHBEARER"):
        connector_config(settings(client={**LOGIN, "sasl.mechanism": "OAUTHBEARER"}))
