"""The tables that a connector captures, the topic of each, and their names as Debezium's include lists take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cdc.record.topic_names import TableName, starred, table_topic
from cdc.settings.model import Settings

_LOOK_AHEAD = "(?!"
_LOOK_AHEAD_END = re.compile(r"(?<!\\)\$\)")
_REFUSED = re.compile(r"[^a-zA-Z0-9._*-]")


def captures(settings: Settings, table: str) -> bool:
    """Whether the settings take a table, as ``schema.table``. A signal table is taken where it is named alone."""
    source = settings.source
    named = [spelled(text) for text in source.tables]
    if settings.debezium is not None and table == settings.debezium.signal_table and table not in named:
        return False
    return not _meets(source.exclude, table) and _meets(source.tables, table)


def named_tables(settings: Settings) -> list[str]:
    """The tables that the settings name one by one, as ``schema.table``."""
    return list(dict.fromkeys(spelled(text) for text in settings.source.tables if not _is_pattern(text)))


def patterns(settings: Settings) -> list[str]:
    """The entries of ``[source] tables`` that are patterns."""
    return [text for text in settings.source.tables if _is_pattern(text)]


def renamed_tables(settings: Settings) -> list[str]:
    """The tables that have a topic of ``[source.topics]``, as ``schema.table``, captured or not."""
    return list(_renamed(settings))


def newly_taken(settings: Settings, running: Mapping[str, str]) -> list[str]:
    """The entries of ``[source] tables`` that a running configuration does not include: names, or patterns."""
    listed = (running.get("table.include.list") or running.get("collection.include.list") or "").split(",")
    exclude = settings.source.exclude
    return [text for text in settings.source.tables if not any(_takes(one, text, exclude) for one in listed)]


def _takes(expression: str, text: str, exclude: Iterable[str]) -> bool:
    """Whether an expression that is in force takes all that an entry of the settings means."""
    if not _is_pattern(text):
        return includes(expression, spelled(text))
    wanted = table_list([text], exclude)
    (takes, bars), (wanted_takes, wanted_bars) = _parted(expression), _parted(wanted)
    return takes == wanted_takes and bars <= wanted_bars


def _parted(expression: str) -> tuple[str, set[str]]:
    """An expression without the look-aheads that leave tables out, and those."""
    rest, bars = expression, set()
    kept = []
    while (begin := rest.find(_LOOK_AHEAD)) >= 0:
        end = _LOOK_AHEAD_END.search(rest, begin)
        if end is None:
            break
        bars.add(rest[begin : end.end()])
        kept.append(rest[:begin])
        rest = rest[end.end() :]
    return "".join(kept) + rest, bars


def usual_topic(settings: Settings, table: str) -> str:
    """The topic that Debezium gives to a table. SQL Server's have the database before the schema."""
    database = _database(settings)
    schema, _, name = table.rpartition(".")
    return table_topic(settings.name, TableName(schema if database is None else f"{database}.{schema}", name))


def topic_of(settings: Settings, table: str) -> str:
    """The topic that a table's records are in: the usual one, or that of ``[source.topics]``."""
    return _renamed(settings).get(table) or usual_topic(settings, table)


def table_of(settings: Settings, topic: str) -> str | None:
    """The captured table that a topic is of. None for a topic of no captured table.

    A pattern's table is named as the topic names it: characters that Kafka does not take are ``_`` there.
    """
    for table, renamed in _renamed(settings).items():
        if renamed == topic and captures(settings, table):
            return table
    for table in named_tables(settings):
        if topic_of(settings, table) == topic and captures(settings, table):
            return table
    return usual_table_of(settings, topic)


def usual_table_of(settings: Settings, topic: str) -> str | None:
    """The captured table that a topic is of by its name alone. None for one whose topic ``[source.topics]`` names."""
    database = _database(settings)
    prefix = f"{settings.name}." if database is None else table_topic(settings.name, TableName(database, ""))
    table = topic.removeprefix(prefix)
    if table == topic or "." not in table or table in map(_as_in_topic, _renamed(settings)):
        return None
    return table if captures(settings, table) or _captured_by_another_name(settings, table) else None


def _captured_by_another_name(settings: Settings, table: str) -> bool:
    """Whether a pattern takes a table whose name has, where this one has ``_``, what Kafka does not take."""
    source, signals = settings.source, settings.debezium.signal_table if settings.debezium is not None else None
    barred = [_as_in_topic(text) for text in [*source.exclude, *([signals] if signals is not None else [])]]
    patterns = [_as_in_topic(text) for text in source.tables if _is_pattern(text) and _as_in_topic(text) != text]
    return _meets(patterns, table) and not _meets(barred, table)


def _renamed(settings: Settings) -> dict[str, str]:
    return {spelled(table): topic for table, topic in settings.source.topics.items()}


def _as_in_topic(text: str) -> str:
    return _REFUSED.sub("_", spelled(text))


def _is_pattern(text: str) -> bool:
    return "*" in text and spelled(text) == text


def _meets(patterns: Iterable[str], table: str) -> bool:
    for text in patterns:
        if spelled(text) == table or (_is_pattern(text) and starred(text).fullmatch(table) is not None):
            return True
    return False


def _database(settings: Settings) -> str | None:
    if settings.debezium is None or settings.debezium.database != "sqlserver":
        return None
    parts = dict(part.split("=", 1) for part in settings.source.dsn.split() if "=" in part)
    return parts.get("dbname")


_IN_QUOTES = re.compile(r'"((?:[^"]|"")+)"\."((?:[^"]|"")+)"')
_ESCAPED = re.compile(r"\\(x2c|.)", re.DOTALL)
_SPECIAL = frozenset(r"\.[]{}()*+-?^$|&~# ")


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
    left_out = "".join(f"(?!{_pattern(table)}$)" for table in exclude)
    return ",".join(f"(?-i){left_out}{_pattern(table)}" for table in tables)


def includes(expression: str, name: str) -> bool:
    """Whether an expression of ours takes a name, as Debezium finds it.

    >>> includes(table_list(["public.*"], exclude=["public.Old"]), "public.Old")
    False
    """
    # Java's (?-i) at the start is what Python does anyway.
    return re.fullmatch(expression.removeprefix("(?-i)"), name, re.DOTALL) is not None


def spelled(text: str) -> str:
    """An entry of ``tables`` as the database spells it: without the double quotes around names that hold a dot or star.

    >>> spelled('"my.schema"."a""b"'), spelled("public.*")
    ('my.schema.a"b', 'public.*')
    """
    found = _IN_QUOTES.fullmatch(text)
    return ".".join(part.replace('""', '"') for part in found.groups()) if found is not None else text


def _pattern(table: str) -> str:
    name = spelled(table)
    return quoted(name) if name != table else ".*".join(quoted(part) for part in table.split("*"))
