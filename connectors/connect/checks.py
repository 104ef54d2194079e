"""``cdc check`` for the Kafka Connect side: what stops Debezium from working, and what fixes it."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.checks.finding import Finding, fail, failure, ok, warn
from cdc.errors import CdcError, Exit
from cdc.settings import Settings
from connectors.connect.connector import Connector
from connectors.debezium.client import MissingConnector, unencrypted
from connectors.debezium.config import debezium_settings
from connectors.debezium.mongodb import patch_cautions

PART = "connect"


def check_connect(settings: Settings) -> list[Finding]:
    """Reachable, the plugin there, the server's own validation, drift, and whether it runs. Raises nothing."""
    return list(_findings(settings))


def _findings(settings: Settings) -> Iterator[Finding]:
    try:
        debezium = debezium_settings(settings)
        connector = Connector(settings)
        wanted = connector.wanted()
        cluster = connector.client.cluster()
    except CdcError as error:
        yield failure(PART, "reachable", error)
        return
    yield ok(PART, "reachable", f"Kafka Connect {cluster.get('version', '?')} answers at {debezium.url}")
    clear_text = unencrypted(debezium.url)
    if clear_text is not None:
        yield warn(PART, "encrypted", clear_text, "serve the REST API by https and set [debezium] url to it")
    for message, fix in patch_cautions(settings):
        yield warn(PART, "patches", message, fix)
    try:
        errors = connector.validate()
    except CdcError as error:
        yield failure(PART, "plugin", error)
        return
    yield ok(PART, "plugin", f"the worker has {wanted['connector.class']}")
    for option, words in errors.items():
        yield fail(PART, "configuration", f"{option}: {words[0]}", "mend [source], [debezium] or [debezium.options]")
    if not errors:
        yield ok(PART, "configuration", "Kafka Connect accepts the configuration")
    try:
        yield from _running(connector)
    except CdcError as error:
        yield failure(PART, "connector", error)


def _running(connector: Connector) -> Iterator[Finding]:
    try:
        changes = connector.diff()
        status = connector.status()
    except MissingConnector:
        yield warn(PART, "connector", f"the connector {connector.name} is not deployed", "cdc connect deploy")
        return
    if changes:
        yield warn(
            PART, "drift", f"{len(changes)} options of {connector.name} differ from the settings", "cdc connect diff"
        )
    if status.runs:
        yield ok(PART, "connector", f"{connector.name} runs with {len(status.tasks)} task(s)")
    elif status.fault:
        yield fail(
            PART,
            "connector",
            f"{connector.name} failed: {status.fault}",
            "mend the cause, then cdc connect restart",
            exit=Exit.UNAVAILABLE,
        )
    else:
        yield warn(PART, "connector", f"{connector.name} is {status.state}", "cdc connect resume")
