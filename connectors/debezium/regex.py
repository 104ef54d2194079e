"""Names of tables as the regular expressions that Debezium's include lists take."""

from __future__ import annotations

from collections.abc import Iterable

_SPECIAL = frozenset(r"\.[]{}()*+-?^$|&~# ")


def quoted(name: str) -> str:
    r"""A name as a Java expression that matches it and nothing else; a comma would part the list.

    >>> print(quoted("order.items, old"))
    order\.items\x2c\ old
    """
    return "".join("\\x2c" if c == "," else "\\" + c if c in _SPECIAL else c for c in name)


def table_list(tables: Iterable[str], exclude: Iterable[str] = ()) -> str:
    r"""``table.include.list`` for our patterns (``schema.table``, ``schema.*``).

    Debezium matches without regard to case unless told otherwise, and takes either an include or an exclude
    list: what stays out becomes a look-ahead.

    >>> print(table_list(["public.*"], exclude=["public.Old"]))
    (?-i)(?!public\.Old$)public\..*
    """
    left_out = "".join(f"(?!{_pattern(table)}$)" for table in exclude)
    return ",".join(f"(?-i){left_out}{_pattern(table)}" for table in tables)


def _pattern(table: str) -> str:
    return ".*".join(quoted(part) for part in table.split("*"))
