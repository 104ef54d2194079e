"""The consistency of a view, which its section names and its source has to be able to give."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.errors import ConfigError, UsageError
from cdc.settings import Settings, is_postgres
from cdc.topic import VIEW_SCHEMA
from cdc.views.eager import EAGER

_ORDERED = frozenset(("postgres", "mysql", "mariadb"))
"""Databases whose records of Debezium's are rows."""


def require_consistency(settings: Settings, name: str) -> bool:
    """Whether a view is eager. ConfigError where that is not what its source can give, or it closes windows all the
    same."""
    said = settings.views[name].consistency
    if settings.source.kind != "debezium":
        if said:
            hint = f"leave [views.{name}] consistency out: its documents are whole transactions here"
            raise ConfigError(f"the view {name} is eager, and cdc run captures its tables", hint=hint)
        return False
    if not said:
        raise ConfigError(
            f"Debezium's topics do not say which records are whole transactions, and the view {name} does not say that "
            "it takes others",
            hint=f'set [views.{name}] consistency = "{EAGER}"; the manual of views says what that does not promise',
        )
    _require_readable(settings, name)
    return True


def _require_readable(settings: Settings, name: str) -> None:
    database = settings.debezium.database if settings.debezium is not None else "postgres"
    if database not in _ORDERED:
        raise ConfigError(
            f"the view {name} is over topics of {database}, and views are over those of Postgres, MySQL and MariaDB",
            hint="leave the view out: sinks keep their stores true from the tables themselves",
        )
    if settings.views[name].close:
        raise ConfigError(
            f"the view {name} is eager and closes windows, for which every change of a time has to be known",
            hint=f"leave [views.{name}] close out",
        )


def promises(settings: Settings, *, eager: bool) -> Iterator[str]:
    """The promises of an eager view and their limits, a sentence each. Nothing for another view: the manual says it of
    all."""
    if not eager:
        return
    yield "once the source rests and all is read, each document is what the text says"
    yield "until then a document may show a part of a transaction, and two documents may show different times"
    yield "no document is promised at an LSN: cdc wait --table is refused"
    if is_postgres(settings):
        yield "cdc verify compares it while the source rests"
    else:
        yield "cdc verify does not compare it: the source's database has never run the text"


def is_eager(settings: Settings, name: str) -> bool:
    """Whether the settings have a view of this name that is eager."""
    section = settings.views.get(name)
    return section is not None and section.consistency == EAGER


def refuse_to_wait(settings: Settings, table: str) -> None:
    """UsageError for a table that is an eager view: no document of it is promised at an LSN."""
    schema, _, name = table.partition(".")
    if schema == VIEW_SCHEMA and is_eager(settings, name):
        raise UsageError(
            f"the view {name} is eager, so no LSN of it can be waited for",
            hint="wait for the tables: cdc wait SINK LSN without --table",
        )
