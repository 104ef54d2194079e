"""Tables whose rows are stored in other tables: children by INHERITS, chunks of TimescaleDB, shards of Citus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from cdc.settings import SourceSettings
from cdc.sql import load
from cdc.topic import TableName
from connectors.postgres.connections import Connection
from connectors.postgres.problems import Home
from connectors.postgres.selection import unnamed

_SQL = load("connectors.postgres", "homes.sql")
_SPREAD = {
    "hypertable": "a hypertable of TimescaleDB, whose rows are in chunks",
    "pg_dist_partition": "distributed by Citus, which has its rows in shards",
}


def read_homes(conn: Connection, oids: Iterable[int]) -> Mapping[int, Home]:
    """Of each of these tables whose rows are not all in itself or its partitions, where they are."""
    wanted = {"oids": list(oids)}
    children: dict[int, list[TableName]] = defaultdict(list)
    for oid, schema, name in conn.execute(_SQL["children"].encode(), wanted).fetchall():
        children[oid].append(TableName(schema, name))
    spread: dict[int, str] = {}
    for (notes,) in conn.execute(_SQL["readable"].encode()).fetchall():
        spread |= {oid: _SPREAD[notes] for (oid,) in conn.execute(_SQL[notes].encode(), wanted).fetchall()}
    return {oid: Home(spread.get(oid, ""), tuple(children[oid])) for oid in {*children, *spread}}


def unnamed_children(conn: Connection, oids: Iterable[int], source: SourceSettings) -> Mapping[int, list[TableName]]:
    """Of each of these tables, those that inherit from it and that the settings do not mention."""
    return {oid: unnamed(home.children, source) for oid, home in read_homes(conn, oids).items()}
