"""Asks a database who it is, for ``cdc check``."""

from __future__ import annotations

import sqlalchemy

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import quoted
from cdc.record.server_facts import StoreFacts
from sinks.contract.registry import SinkSpec
from sinks.contract.store_facts import login, unreached
from sinks.sql.sql_client import connect_args, refuses_login


def probe_sql(spec: SinkSpec) -> StoreFacts:
    """A database that SQLAlchemy speaks: its dialect and its version.

    Raises ConfigError for a URL or a login that does not fit, SinkError when the database does not answer.
    """
    url, password = spec.text("url"), spec.secrets.get("password")
    try:
        parsed = sqlalchemy.make_url(url)
        parsed = parsed.set(password=password) if password is not None else parsed
        engine = sqlalchemy.create_engine(parsed, connect_args=connect_args(parsed))
    except (sqlalchemy.exc.ArgumentError, ImportError, ValueError) as error:
        raise ConfigError(
            f"SQLAlchemy cannot use the url: {quoted(str(error))}", hint='write url = "postgresql+psycopg://..."'
        ) from None
    where = f"{parsed.host or 'localhost'}:{parsed.port}" if parsed.port else str(parsed.host or parsed.database)
    try:
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text("select 1"))
            version = ".".join(str(part) for part in connection.dialect.server_version_info or ())
    except sqlalchemy.exc.SQLAlchemyError as error:
        reason = quoted(str(error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error))
        if refuses_login(error, parsed):
            raise login(where, reason) from None
        raise unreached("the database", where, reason, "url") from None
    finally:
        engine.dispose()
    return StoreFacts(product=engine.dialect.name, version=version)
