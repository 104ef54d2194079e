"""Names of tables as the regular expressions that Debezium's include lists take."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
