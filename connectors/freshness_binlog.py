"""The questions of a wait for freshness to Kafka Connect and to MySQL or MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from cdc.clock import SYSTEM_CLOCK, Clock
from cdc.errors import UsageError
from cdc.freshness.rules import InLog
from cdc.settings import Settings
from cdc.topic import TableName
from connectors.connect.connector import Connector
from connectors.connect.topics import noted_ends
from connectors.debezium.address import address
from connectors.debezium.captured_tables import table_of
from connectors.debezium.passed import require_heartbeat, wait_until_passed
from connectors.kafka.reach import require_broker
from connectors.mysql.binlog_end import BinlogEnd
from connectors.mysql.gtid import names_transaction
from connectors.mysql.session import open_session
from connectors.postgres.selection import kept

_PORT = 3306


def wait_until_in_log(settings: Settings, gtids: str, timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> InLog:
    """Return when the topics hold the transactions that ``gtids`` names, with the ends that these lie below.

    UsageError for what names no transaction of the server's. DifferenceFound when ``timeout_s`` has passed. ConfigError
    where the connector's progress is not known. LogError, at once, when no broker takes a connection, SourceError and
    ConnectError when a server does not answer.
    """
    require_broker(settings.log)
    connector = Connector(settings, clock=clock)
    require_heartbeat(connector.name, connector.running_config())
    with closing(open_session(settings, address(settings, _PORT))) as session:
        end = BinlogEnd(session)
        _require_logged(end, gtids)
        passed = wait_until_passed(connector.offsets, end, gtids, timeout_s=timeout_s, clock=clock)
    # Asked behind the offset, so that they cover it.
    return InLog(place=f"GTID {passed}", ends=noted_ends(settings))


def keeps(settings: Settings, patterns: Sequence[str], topic: str) -> bool:
    """Whether a sink that keeps the tables of ``patterns`` (all of them without any) keeps the one of a topic. Yes for
    a table that the settings do not take any more: its records may be older than they are."""
    table = table_of(settings, topic)
    return table is None or bool(kept([TableName(*table.rsplit(".", 1))], patterns))


def _require_logged(end: BinlogEnd, gtids: str) -> None:
    mariadb = end.server.mariadb
    hint = "after the commit: " + ("select @@last_gtid" if mariadb else "select @@global.gtid_executed")
    if not names_transaction(gtids, mariadb=mariadb):
        raise UsageError(f'"{gtids}" is no GTID of a {"MariaDB" if mariadb else "MySQL"}', hint=f"take it {hint}")
    known = end.gtids()
    if not end.covers(known, gtids):
        raise UsageError(
            f"{gtids} is not in the server's log, which ends at {known or 'no GTID'}", hint=f"take it {hint}"
        )
