"""``cdc check`` for the Kafka Connect side: what stops Debezium from working, and what fixes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cdc.checks.findings import Finding, Level, fail, failure, ok, warn
from cdc.process.errors import CdcError, Exit
from cdc.record.ports import Unknown, look
from cdc.settings.model import Settings
from connectors.debezium.client import MissingConnector
from connectors.debezium.config import debezium_settings
from connectors.debezium.connector import Connector
from connectors.debezium.databases import named_tables
from connectors.debezium.status import advice
from connectors.debezium.tables import captured_tables, partial_tables
from connectors.debezium.topics import unfit_topics
from connectors.kafka.admin import TopicAdmin
from connectors.kafka.broker_answers import require_broker

PART = "connect"
_UNUSED = "there is a [debezium] section though cdc run captures: sinks take records of both, as after a handover"


def check_connect(settings: Settings) -> list[Finding]:
    """Reachable, the plugin there, the server's own validation, drift, and whether it runs. Raises nothing."""
    if settings.source.kind == "debezium":
        return list(_findings(settings))
    # Nothing of it captures now: what is wrong there stops a handover alone.
    found = [replace(one, level=Level.WARN) if one.level is Level.FAIL else one for one in _findings(settings)]
    return [warn(PART, "section", _UNUSED, "take the section out, unless a handover is planned or was done"), *found]


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
    yield from _same_kafka(settings, str(cluster.get("kafka_cluster_id", "")))
    yield from (fail(PART, "topics", problem, fix) for problem, fix in _unfit(settings))
    partly = look(lambda: partial_tables(settings))
    if not isinstance(partly, Unknown):  # a source that does not answer is a finding of its own
        yield from (fail(PART, "identity", problem.message, problem.hint) for problem in partly)
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


def _unfit(settings: Settings) -> list[tuple[str, str]]:
    met = look(lambda: captured_tables(settings))
    tables = named_tables(settings) if isinstance(met, Unknown) else met
    problems = look(lambda: list(unfit_topics(settings, tables)))
    # A Kafka that does not answer is a finding of its own.
    return [] if isinstance(problems, Unknown) else problems


def _same_kafka(settings: Settings, workers: str) -> Iterator[Finding]:
    """Records that the worker writes to another Kafka never reach the sinks. Silent where [log] does not answer, which
    is a finding of its own."""

    def cluster() -> str:
        require_broker(settings.log)
        return TopicAdmin(settings.log).cluster_id()

    ours = look(cluster)
    if workers and not isinstance(ours, Unknown) and ours != workers:
        message = f"the worker writes to the Kafka cluster {workers}, and [log] is the cluster {ours}"
        yield fail(
            PART, "cluster", message, "set [log] bootstrap_servers to the worker's Kafka, or take another worker"
        )


def _running(connector: Connector) -> Iterator[Finding]:
    try:
        changes = connector.diff()
        status = connector.status()
    except MissingConnector:
        yield warn(PART, "connector", f"the connector {connector.name} is not deployed", "cdc connect deploy")
        return
    if changes:
        message = f"{', '.join(changes)} of {connector.name} differ from the settings"
        yield warn(PART, "drift", message, "cdc connect deploy brings the connector to the settings")
    unread = look(connector.unread)
    if not isinstance(unread, Unknown):  # a Kafka that does not answer is a finding of its own
        yield from (warn(PART, "unread", message, fix) for message, fix in unread)
    if status.runs:
        yield ok(PART, "connector", f"{connector.name} runs with {len(status.tasks)} task(s)")
    elif status.fault:
        message = f"{connector.name} failed: {status.fault}"
        yield fail(PART, "connector", message, advice(status.fault), exit=Exit.UNAVAILABLE)
    else:
        yield warn(PART, "connector", f"{connector.name} is {status.state}", "cdc connect resume")
