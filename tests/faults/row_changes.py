"""Changes of rows that Hypothesis makes up: as SQL, and on a dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from hypothesis import strategies as st

Row = dict[str, Any]
Rows = dict[int, Row]


class Change(NamedTuple):
    """One statement on one row: ``move`` takes the row of ``key`` to ``other``."""

    what: Literal["put", "touch", "swell", "delete", "move"]
    key: int
    other: int

    def sql(self, table: str) -> str:
        match self.what:
            case "put":
                return (
                    f"insert into {table} (id, v, n, big) select {self.key}, 'v{self.other}', {self.other}, 'small'"
                    f" where not exists (select from {table} where id = {self.key})"
                )
            case "touch":
                return f"update {table} set v = 'w{self.other}' where id = {self.key}"
            case "swell":
                return f"update {table} set big = repeat('{self.other}.', 4000) where id = {self.key}"
            case "delete":
                return f"delete from {table} where id = {self.key}"
            case "move":
                free = f"not exists (select from {table} where id = {self.other})"
                return f"update {table} set id = {self.other} where id = {self.key} and {free}"

    def on(self, rows: Rows, added: Mapping[str, str]) -> None:
        """The same on the dict."""
        match self.what:
            case "put" if self.key not in rows:
                rows[self.key] = {"id": self.key, "v": f"v{self.other}", "n": self.other, "big": "small"} | dict(added)
            case "touch" if self.key in rows:
                rows[self.key]["v"] = f"w{self.other}"
            case "swell" if self.key in rows:
                rows[self.key]["big"] = f"{self.other}." * 4000
            case "delete":
                rows.pop(self.key, None)
            case "move" if self.key in rows and self.other not in rows:
                rows[self.other] = rows.pop(self.key) | {"id": self.other}


class Transaction(NamedTuple):
    """Changes to one table. Of one with a savepoint only the first half stays."""

    table: str
    changes: list[Change]
    end: Literal["commit", "rollback", "savepoint", "prepared", "prepared and rolled back"]

    @property
    def kept(self) -> int:
        match self.end:
            case "rollback" | "prepared and rolled back":
                return 0
            case "savepoint":
                return len(self.changes) // 2
            case _:
                return len(self.changes)

    def sql(self) -> list[str]:
        lines = ["begin"]
        for number, change in enumerate(self.changes):
            if self.end == "savepoint" and number == self.kept:
                lines.append("savepoint here")
            lines.append(change.sql(self.table))
        match self.end:
            case "savepoint":
                lines += ["rollback to savepoint here", "commit"]
            case "prepared":
                lines += ["prepare transaction 'here'", "commit prepared 'here'"]
            case "prepared and rolled back":
                lines += ["prepare transaction 'here'", "rollback prepared 'here'"]
            case _:
                lines.append(self.end)
        return lines


ALTERED = st.sampled_from(("a", "b"))
_KINDS = st.sampled_from(("put", "put", "touch", "swell", "delete", "move"))
CHANGES = st.lists(st.builds(Change, _KINDS, st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6)
_ENDS = st.sampled_from(("commit", "commit", "commit", "rollback", "savepoint", "prepared", "prepared and rolled back"))
TRANSACTIONS = st.lists(st.builds(Transaction, ALTERED, CHANGES, _ENDS), min_size=2, max_size=8)
