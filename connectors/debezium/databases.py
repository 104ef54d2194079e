"""What the connector of each database is told: the address, its tables as Debezium's lists take them, its options."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

from cdc.process.errors import ConfigError
from cdc.record.topic_names import IN_QUOTES, TableName, table_topic
from cdc.settings.dsn import parts_of
from cdc.settings.model import DebeziumSettings, Settings
from connectors.postgres.server.table_selection import takes

_PORTS: Mapping[str, int] = {"postgres": 5432, "mysql": 3306, "mariadb": 3306, "oracle": 1521, "sqlserver": 1433}
_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_SPECIAL = frozenset(r"\.[]{}()*+-?^$|&~# ")


def database_options(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """The options that are of the database's kind. ConfigError where dsn, tables or signal table do not fit it."""
    return _OPTIONS[debezium.database](settings, debezium)


def usual_topic(settings: Settings, table: str) -> str:
    """The topic that Debezium gives to a table. SQL Server's have the database before the schema."""
    schema, _, name = table.rpartition(".")
    if settings.debezium is not None and settings.debezium.database == "sqlserver":
        schema = f"{_database(settings)}.{schema}"
    return table_topic(settings.name, TableName(schema, name))


def topic_of(settings: Settings, table: str) -> str:
    """The topic that a table's records are in: the usual one, or that of ``[source.topics]``."""
    named = {spelled(name): topic for name, topic in settings.source.topics.items()}
    return named.get(table) or usual_topic(settings, table)


def captures(settings: Settings, table: str) -> bool:
    """Whether the settings take a table, as ``schema.table``. A signal table is taken where it is named alone."""
    source, debezium = settings.source, settings.debezium
    if debezium is not None and table == debezium.signal_table and table not in map(spelled, source.tables):
        return False
    return takes(table, source.tables, source.exclude)


def captures_collection(settings: Settings, collection: str) -> bool:
    """The same of a name in Debezium's offsets: Oracle's and SQL Server's have the database before the schema."""
    return captures(settings, collection) or captures(settings, collection.partition(".")[2])


def named_tables(settings: Settings) -> list[TableName]:
    """The tables that the settings name one by one."""
    names = dict.fromkeys(spelled(text) for text in settings.source.tables if not is_pattern(text))
    return [TableName(*name.rsplit(".", 1)) for name in names]


def is_pattern(text: str) -> bool:
    """Whether an entry of ``tables`` may mean several."""
    return "*" in text and spelled(text) == text


def described_address(settings: Settings) -> str:
    """host, port and database for people, from any form of dsn. No user, no password.

    ConfigError for a dsn that does not fit the database.
    """
    dsn = settings.source.dsn
    if "://" in dsn:
        parts = urlsplit(dsn)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
    found = _address(settings, 0)
    return f"{found['host']}:{found['port']}/{found.get('dbname', '')}".replace(":0/", "/").rstrip("/")


# Names of tables.


def spelled(text: str) -> str:
    """An entry of ``tables`` as the database spells it: without the double quotes around names that hold a dot or star.

    >>> spelled('"my.schema"."a""b"'), spelled("public.*")
    ('my.schema.a"b', 'public.*')
    """
    found = IN_QUOTES.fullmatch(text)
    return ".".join(part.replace('""', '"') for part in found.groups()) if found is not None else text


def quoted(name: str) -> str:
    r"""A name as a Java expression that matches it and nothing else. A comma would part the list.

    >>> print(quoted("order.items, old"))
    order\.items\x2c\ old
    """
    return "".join("\\x2c" if c == "," else "\\" + c if c in _SPECIAL else c for c in name)


def table_list(tables: Iterable[str], exclude: Iterable[str] = ()) -> str:
    r"""``table.include.list`` for our patterns (``schema.table``, ``schema.*``).

    Debezium matches without regard to case by default, and takes either an include or an exclude
    list: what stays out becomes a look-ahead.

    >>> print(table_list(["public.*"], exclude=["public.Old"]))
    (?-i)(?!public\.Old$)public\..*
    """
    left_out = "".join(f"(?!{_expression(table)}$)" for table in exclude)
    return ",".join(f"(?-i){left_out}{_expression(table)}" for table in tables)


def includes(config: Mapping[str, str], table: str) -> bool:
    """Whether a configuration of ours captures a table, as Debezium finds it.

    >>> includes({"table.include.list": table_list(["public.*"], exclude=["public.Old"])}, "public.Old")
    False
    """
    listed = config.get("table.include.list") or config.get("collection.include.list") or ""
    # Java's (?-i) at the start is what Python does anyway.
    return any(re.fullmatch(one.removeprefix("(?-i)"), table, re.DOTALL) is not None for one in listed.split(","))


def _expression(table: str) -> str:
    name = spelled(table)
    return quoted(name) if name != table else ".*".join(quoted(part) for part in table.split("*"))


# The server's address.


def _address(settings: Settings, port: int) -> dict[str, str]:
    """host, port, user, dbname and all else of the dsn. ConfigError where the host or the user is missing."""
    try:
        parts = parts_of(settings.source.dsn)
    except ConfigError:
        raise ConfigError(
            "[source] dsn is not a list of key=value pairs",
            hint=f'write it as dsn = "host=127.0.0.1 port={port} dbname=shop user=cdc"',
        ) from None
    if "password" in parts:
        raise ConfigError("[source] dsn holds a password", hint="use [debezium] database_password")
    for name in ("host", "user"):
        if name not in parts:
            raise ConfigError(f"[source] dsn names no {name}", hint=f"add {name}=... to it")
    return {"port": str(port), **parts}


def _database(settings: Settings) -> str:
    """The database of the dsn. ConfigError where it names none."""
    found = _address(settings, 0).get("dbname")
    if found is None:
        raise ConfigError("[source] dsn names no database", hint="add dbname=... to it")
    return found


# Options that several databases have.


def _relational(settings: Settings, debezium: DebeziumSettings, *, lists_signals: bool) -> dict[str, str]:
    """Server, tables and signals. ``lists_signals``: the signal table is captured, and signals need no table."""
    parts, tables = _address(settings, _PORTS[debezium.database]), [*settings.source.tables]
    if lists_signals and debezium.signal_table is not None:
        tables.append(debezium.signal_table)
    return {
        "database.hostname": parts["host"],
        "database.port": parts["port"],
        "database.user": parts["user"],
        "table.include.list": table_list(tables, settings.source.exclude),
        # A compacted topic refuses the null key that Debezium gives a TRUNCATE, and the task would fail.
        "skipped.operations": "t",
        **_signals(settings, debezium),
        **({"read.only": "true"} if lists_signals and debezium.signal_table is None else {}),
    }


def _signals(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """Signals through a topic, so that SELECT rights are enough, or through a table as well."""
    config = {
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": f"{settings.name}.signals",
        "signal.kafka.bootstrap.servers": settings.log.bootstrap_servers,
        "signal.kafka.groupId": f"{settings.name}-signals",
    }
    if debezium.signal_table is None:
        return config
    return config | {"signal.enabled.channels": "source,kafka", "signal.data.collection": debezium.signal_table}


def _history(settings: Settings) -> dict[str, str]:
    """``schema.history.internal.*``: a topic that must never be compacted nor deleted from."""
    return {
        "include.schema.changes": "false",
        "schema.history.internal.kafka.topic": f"{settings.name}.schema-history",
        "schema.history.internal.kafka.bootstrap.servers": settings.log.bootstrap_servers,
        # With the captured tables' alone, the first change of a table that is added later stops the connector.
        "schema.history.internal.store.only.captured.tables.ddl": "false",
        "schema.history.internal.store.only.captured.databases.ddl": "true",
    }


# One function a database.


def _postgres(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """Postgres 10 and later, by pgoutput: slot, publication and topics as the native capture would use them."""
    parts = _address(settings, _PORTS["postgres"])
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        **_relational(settings, debezium, lists_signals=True),
        "database.dbname": _database(settings),
        "plugin.name": "pgoutput",
        "slot.name": settings.slot,
        "publication.name": settings.publication,
        # cdc connect deploy makes it: Debezium would alter it at each start, by a statement that fails.
        "publication.autocreate.mode": "disabled",
        # Else the fences of cdc verify and cdc wait would be records of a topic of their own.
        "message.prefix.exclude.list": "cdc\\..*",
        # Else a column whose type Debezium does not know is left out without a word in the record.
        "include.unknown.datatypes": "true",
    }
    if settings.log.encoding == "readable":
        config["interval.handling.mode"] = "string"
    return config | {f"database.{name}": parts[name] for name in _TLS if name in parts}


def _binlog(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """MySQL 8.0 and MariaDB 10.6 and later. Without GTIDs a signal table is needed for incremental snapshots."""
    plugin = {"mysql": "mysql.MySqlConnector", "mariadb": "mariadb.MariaDbConnector"}[debezium.database]
    databases = dict.fromkeys(table.partition(".")[0] for table in map(spelled, settings.source.tables))
    config = {
        "connector.class": f"io.debezium.connector.{plugin}",
        **_relational(settings, debezium, lists_signals=True),
        # A replica's id: stable, and apart from the small numbers that servers use.
        "database.server.id": str(10_000 + zlib.crc32(settings.name.encode()) % (2**31 - 10_000)),
        "database.include.list": ",".join(f"(?-i){quoted(name)}" for name in databases),
        **_history(settings),
    }
    if settings.log.encoding == "readable":
        config["bigint.unsigned.handling.mode"] = "precise"
        if debezium.schemas:
            # As ISO text a TIME below zero or above a day would be NULL. The schema says what the number is.
            config["time.precision.mode"] = "adaptive_time_microseconds"
    return config


def _mongodb(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """MongoDB 6.0 and later, a replica set or a sharded cluster, by change streams. Updates carry the whole document
    after the change: a compacted topic has to hold whole rows."""
    url = urlsplit(settings.source.dsn)
    if url.scheme not in ("mongodb", "mongodb+srv") or not url.hostname:
        raise ConfigError(
            "[source] dsn is not a MongoDB connection string",
            hint='write it as dsn = "mongodb://cdc@127.0.0.1:27017/?replicaSet=rs0"',
        )
    if url.password is not None:
        raise ConfigError("[source] dsn holds a password", hint="use [debezium] database_password")
    user, _, hosts = url.netloc.rpartition("@")
    config = {
        "connector.class": "io.debezium.connector.mongodb.MongoDbConnector",
        "mongodb.connection.string": urlunsplit(url._replace(netloc=hosts, path=url.path or "/")),
        "capture.mode": "change_streams_update_full",
        "json.serialization.mode": "strict",
        "collection.include.list": table_list(settings.source.tables, settings.source.exclude),
        **_signals(settings, debezium),
    }
    return config | ({"mongodb.user": unquote(user)} if user else {})


def _oracle(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """Oracle 19c and later, by LogMiner. ``dbname`` is the (container) database's service name. The pluggable database,
    where there is one, stands in ``[debezium.options] "database.pdb.name"``."""
    if debezium.signal_table is not None and debezium.signal_table.count(".") != 2:
        raise ConfigError(
            "Oracle's signal table is named with its database", hint='write signal_table = "DATABASE.SCHEMA.TABLE"'
        )
    config = {
        "connector.class": "io.debezium.connector.oracle.OracleConnector",
        **_relational(settings, debezium, lists_signals=False),
        "database.dbname": _database(settings),
        "log.mining.strategy": "online_catalog",
        "lob.enabled": "true",
        **_history(settings),
    }
    return config | ({"interval.handling.mode": "string"} if settings.log.encoding == "readable" else {})


def _sqlserver(settings: Settings, debezium: DebeziumSettings) -> dict[str, str]:
    """SQL Server 2017 and later, with CDC enabled on the database and on each table. TLS is asked for unless the dsn
    says ``sslmode=disable``."""
    plain = _address(settings, _PORTS["sqlserver"]).get("sslmode") == "disable"
    return {
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        **_relational(settings, debezium, lists_signals=False),
        "database.names": _database(settings),
        "database.encrypt": str(not plain).lower(),
        **_history(settings),
    }


_OPTIONS: Mapping[str, Callable[[Settings, DebeziumSettings], dict[str, str]]] = {
    "postgres": _postgres,
    "mysql": _binlog,
    "mariadb": _binlog,
    "mongodb": _mongodb,
    "oracle": _oracle,
    "sqlserver": _sqlserver,
}
