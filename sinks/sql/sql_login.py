"""Whether a database refuses a login: by its code, in any language."""

from __future__ import annotations

from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, exc

from cdc.libpq_login import answer
from sinks.sql.sql_faults import state_of

_POSTGRES = ("psycopg", "psycopg2")
_INVALID_LOGIN = "28"
"""The class of SQLSTATEs."""
_MYSQL = (1044, 1045, 1698)


def refuses_login(error: exc.SQLAlchemyError, url: URL) -> bool:
    """Whether a connection to ``url`` failed for its login. Postgres is asked once more: its drivers do not say."""
    original = error.orig if isinstance(error, exc.DBAPIError) else error
    state = state_of(error)
    if state or url.get_driver_name() not in _POSTGRES:
        code = next(iter(getattr(original, "args", ())), None)
        return state.startswith(_INVALID_LOGIN) or code in _MYSQL
    if getattr(getattr(original, "pgconn", None), "needs_password", False):
        return True
    _, options = url.get_dialect()().create_connect_args(url)
    return answer(make_conninfo("", **{"connect_timeout": 5, **options})).startswith(_INVALID_LOGIN)
