"""The consistency of a view, which its text names and its source has to be able to give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cdc.errors import ConfigError, UsageError
from cdc.foreign import quoted
from cdc.settings import Settings, is_postgres
from cdc.topic import VIEW_SCHEMA
from cdc.views.eager import EAGER, consistency_of

_LINE = f'-- consistency = "{EAGER}"'
_ORDERED = frozenset(("postgres", "mysql", "mariadb"))
"""Databases whose records of Debezium's are rows."""


def require_consistency(settings: Settings, name: str, said: str) -> bool:
    """Whether a view is eager. ``said``: the consistency that its text names, empty for none.

    ConfigError where that is not what its source can give, or it closes windows all the same.
    """
    if said not in ("", EAGER):
        raise ConfigError(
            f"the view {name} asks for the consistency {said}, which nobody knows", hint=f"write {_LINE}, or nothing"
        )
    if settings.source.kind != "debezium":
        if said:
            hint = "leave the line out of its text: its documents are whole transactions here"
            raise ConfigError(f"the view {name} is eager, and cdc run captures its tables", hint=hint)
        return False
    if not said:
        raise ConfigError(
            f"Debezium's topics do not say which records are whole transactions, and the view {name} does not say that "
            "it takes others",
            hint=f"begin its text with the line {_LINE}; the manual of views says what that does not promise",
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
    """Whether the settings have a view of this name whose text says that it is eager. ConfigError where that cannot be
    read."""
    section = settings.views.get(name)
    if section is None:
        return False
    try:
        return consistency_of(Path(section.sql).read_text(encoding="utf-8")) == EAGER
    except (OSError, UnicodeDecodeError) as failure:
        hint = f"[views.{name}] sql names the file"
        raise ConfigError(f"the text of the view {name} cannot be read: {quoted(failure)}", hint=hint) from None


def refuse_to_wait(settings: Settings, table: str) -> None:
    """UsageError for a table that is an eager view: no document of it is promised at an LSN. ConfigError where its text
    cannot be read."""
    schema, _, name = table.partition(".")
    if schema == VIEW_SCHEMA and is_eager(settings, name):
        raise UsageError(
            f"the view {name} is eager, so no LSN of it can be waited for",
            hint="wait for the tables: cdc wait SINK LSN without --table",
        )
