"""Sessions with a MySQL or a MariaDB, and its errors as ours. No password is in any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from cdc.errors import CdcError, ConfigError, SourceError
from cdc.foreign import quoted
from cdc.settings import Settings
from cdc.sql import load

_CONNECT_TIMEOUT_S = 10
_PORT = "3306"
_LOGIN = frozenset((1044, 1045, 1698))
_RIGHTS = frozenset((1142, 1143, 1227))
_GONE = frozenset((1054, 1146))
_UNVERIFIED = frozenset(("allow", "prefer", "require"))


class MysqlSession:
    """One session, its text forms pinned. Statements commit by themselves unless a snapshot is open."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        with _translated(engine):
            self._connection = engine.connect()
            for name in ("pinned", "repeatable"):
                self._connection.exec_driver_sql(query(name))

    def run(self, name: str) -> None:
        """A statement of ``queries.sql`` that gives no rows."""
        with _translated(self._engine):
            self._connection.exec_driver_sql(query(name))

    def rows(self, name: str, **parameters: str) -> Sequence[sa.Row[Any]]:
        """All rows of a query of ``queries.sql``."""
        with _translated(self._engine):
            return self._connection.execute(sa.text(query(name)), parameters).fetchall()

    def stream(self, statement: sa.Select[Any], batch_rows: int) -> sa.Result[Any]:
        """The rows of a statement as they come: no more than a batch is in memory. One at a time."""
        with _translated(self._engine):
            return self._connection.execution_options(yield_per=batch_rows).execute(statement)

    def rollback(self) -> None:
        """End the snapshot, if one is open."""
        with _translated(self._engine):
            self._connection.exec_driver_sql("rollback")

    def close(self) -> None:
        """End the session and drop its pool."""
        self._connection.close()
        self._engine.dispose()


class _translated:
    """A context: errors of the driver become ours."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, exc.SQLAlchemyError):
            raise source_error(error, f"{self._engine.url.host}:{self._engine.url.port}") from None


def query(name: str) -> str:
    """The SQL of a named block of this package. KeyError where there is none."""
    return load("connectors.mysql")[name]


def open_session(settings: Settings, parts: dict[str, str]) -> MysqlSession:
    """A session with the source. ``parts``: of the dsn (see :func:`connectors.debezium.address.address`).

    SourceError where it cannot be reached, ConfigError where it refuses who we are, or where the driver is missing.
    """
    password = settings.source.password
    url = sa.URL.create(
        "mysql+pymysql",
        username=parts["user"],
        password=password.reveal() if password is not None else None,
        host=parts["host"],
        port=int(parts.get("port", _PORT)),
        database=parts.get("dbname"),
        query={"charset": "utf8mb4"},
    )
    try:
        engine = sa.create_engine(
            url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT", connect_args=_connect_args(parts)
        )
    except ImportError:
        raise ConfigError(
            "the driver for MySQL and MariaDB is not installed", hint='pip install "headrace[mysql]"'
        ) from None
    return MysqlSession(engine)


def _connect_args(parts: dict[str, str]) -> dict[str, Any]:
    """The dsn's TLS options, named as in libpq, in the driver's form."""
    mode = parts.get("sslmode", "verify-full" if "sslrootcert" in parts else "")
    made: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT_S}
    if not mode or mode == "disable":
        return made
    ssl = {"ca": parts.get("sslrootcert"), "cert": parts.get("sslcert"), "key": parts.get("sslkey")}
    made["ssl"] = {name: value for name, value in ssl.items() if value is not None}
    made["ssl"] |= {"check_hostname": mode == "verify-full", "verify_mode": mode not in _UNVERIFIED}
    return made


def source_error(error: exc.SQLAlchemyError, where: str) -> CdcError:
    """A driver's error as one of ours: which kind it is, and its own words without row data."""
    code, words = _told(error)
    if code in _LOGIN:
        return ConfigError(
            f"the server at {where} refuses the login: {words}",
            hint="check [source] password: cdc verify logs in as the user of the dsn",
        )
    if code in _RIGHTS:
        return ConfigError(
            f"the server at {where} refuses the comparison: {words}",
            hint="grant the user of the dsn SELECT on the tables, and REPLICATION CLIENT (MariaDB: BINLOG MONITOR)",
        )
    if code in _GONE:
        return SourceError(f"a table changed its shape while it was compared: {words}", hint="run cdc verify again")
    return SourceError(
        f"the server at {where} broke off or cannot be reached: {words}",
        hint="check [source] dsn and the server's log, then run the command again",
    )


def _told(error: exc.SQLAlchemyError) -> tuple[int, str]:
    original = getattr(error, "orig", None)
    arguments: tuple[Any, ...] = getattr(original, "args", ())
    if len(arguments) >= 2 and isinstance(arguments[0], int):
        return arguments[0], quoted(arguments[1])
    return 0, quoted(original if original is not None else error)
