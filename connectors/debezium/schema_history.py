"""The topic in which a connector keeps the DDL it has seen: every database but Postgres and MongoDB needs one."""

from __future__ import annotations

from cdc.settings import Settings


def history_options(settings: Settings) -> dict[str, str]:
    """``schema.history.internal.*``: a topic that must never be compacted nor deleted from."""
    return {
        "schema.history.internal.kafka.topic": f"{settings.name}.schema-history",
        "schema.history.internal.kafka.bootstrap.servers": settings.log.bootstrap_servers,
        # With the captured tables' alone, the first change of a table that is added later stops the connector.
        "schema.history.internal.store.only.captured.tables.ddl": "false",
        "schema.history.internal.store.only.captured.databases.ddl": "true",
    }
