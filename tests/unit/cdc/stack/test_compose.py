"""The compose file and the local stack: the same parts, ports and settings, so that one cdc.toml fits both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from cdc.stack.local import DEFAULT_PORTS
from cdc.stack.postgres import SETTINGS as POSTGRES_SETTINGS
from cdc.stack.servers import _BROKER_SETTINGS as KAFKA_SETTINGS
from cdc.stack.servers import DATABASES, OPTIONAL_PARTS, PARTS
from cdc.stack.start import settings_text
from connectors.debezium.config import connector_config
from sinks.contract.kinds import load_settings as load

COMPOSE = Path(__file__).parents[4] / "compose"
_PORT = re.compile(r"127\.0\.0\.1:\$\{CDC_([A-Z]+)_PORT:-(\d+)\}:(\d+)")


def services() -> dict[str, dict[str, Any]]:
    document: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = document["services"]
    return found


def test_both_have_the_same_parts() -> None:
    assert set(services()) == set(PARTS)
    assert {name for name, service in services().items() if "profiles" in service} == set(OPTIONAL_PARTS)


def test_both_have_the_same_ports_on_loopback() -> None:
    for name, service in services().items():
        (port,) = service["ports"]
        match = _PORT.fullmatch(port)
        assert match is not None, port
        assert match[1] == name.upper()
        assert int(match[2]) == int(match[3]) == DEFAULT_PORTS[name]


def test_every_part_has_a_health_check() -> None:
    assert [name for name, service in services().items() if "healthcheck" not in service] == []


def test_postgres_has_the_same_settings() -> None:
    command = services()["postgres"]["command"]
    given = dict(argument.split("=") for argument in command if "=" in argument)
    assert given.items() <= POSTGRES_SETTINGS.items()
    assert {"wal_level", "max_wal_senders", "max_replication_slots", "max_prepared_transactions"} <= given.keys()


def test_kafka_has_the_same_settings() -> None:
    environment = {name: str(value) for name, value in services()["kafka"]["environment"].items()}
    of_the_image = {"listener.security.protocol.map", "inter.broker.listener.name", "controlled.shutdown.enable"}
    for name, value in KAFKA_SETTINGS.items():
        if name not in of_the_image:
            assert environment["KAFKA_" + name.upper().replace(".", "_")] == value, name


def test_redis_has_as_many_databases() -> None:
    command = services()["redis"]["command"]
    assert command[command.index("--databases") + 1] == str(DATABASES)


def test_every_server_has_time_to_stop() -> None:
    """Docker kills after ten seconds, which a server under load may need."""
    assert [name for name, service in services().items() if "stop_grace_period" not in service] == ["redis", "connect"]


def test_debezium_reaches_the_servers_by_their_container_names() -> None:
    settings = load(COMPOSE / "debezium.toml", environment={"CDC_SOURCE_PASSWORD": "for us alone"})
    config = connector_config(settings)
    kafka = services()["kafka"]["environment"]
    assert f"INSIDE://{config['signal.kafka.bootstrap.servers']}" in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert (config["database.hostname"], config["database.port"]) == ("postgres", str(DEFAULT_PORTS["postgres"]))
    assert {"postgres", "kafka"} <= services().keys()
    # A place that was forgotten would be the machine's own, seen from inside.
    assert [value for value in config.values() if "127.0.0.1" in value or "localhost" in value] == []
    assert config["database.password"] == "${env:CDC_SOURCE_PASSWORD}"
    assert "CDC_SOURCE_PASSWORD" in services()["connect"]["environment"]


def test_one_settings_file_fits_both() -> None:
    shipped = load(COMPOSE / "cdc.toml", environment={})
    for name, service in services().items():
        assert str(DEFAULT_PORTS[name]) in str(service["ports"])
    addresses = {
        "postgres": {"dsn": f"host=127.0.0.1 port={DEFAULT_PORTS['postgres']} dbname=postgres user=postgres"},
        "kafka": {"bootstrap_servers": f"127.0.0.1:{DEFAULT_PORTS['kafka']}"},
        "redis": {"url": f"redis://127.0.0.1:{DEFAULT_PORTS['redis']}/0"},
        "opensearch": {"url": f"http://127.0.0.1:{DEFAULT_PORTS['opensearch']}"},
        "warehouse": {"path": "warehouse"},
    }
    local = settings_text(addresses, Path())
    for text in (
        "port=5432",
        shipped.log.bootstrap_servers,
        *(s.place.removeprefix(f"{COMPOSE}/") for s in shipped.sinks.values()),
    ):
        assert text in local
    assert set(shipped.sinks) == {"cache", "search", "warehouse"}
