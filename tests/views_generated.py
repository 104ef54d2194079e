"""Texts of views made up by seed, with tables to read and changes of their rows. Orders in them are total."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

TABLES = ("ta", "tb", "tc", "td")
_POOLS: dict[str, tuple[str, ...]] = {
    "int": ("1", "2", "3", "4", "5"),
    "bigint": ("1", "2", "3", "4", "5"),
    "numeric": ("1", "2.0", "3.00", "4", "5.5", "'NaN'"),
    "text": ("'a'", "'b'", "'C'", "'ä'", "''"),
    "varchar(9)": ("'a'", "'b'", "'C'", "'ä'", "''"),
    "char(4)": ("'a'", "'b '", "'C'", "'ab'", "''"),
    "char(6)": ("'a'", "'b '", "'C'", "'ab'", "''"),
    "uuid": tuple(f"'00000000-0000-0000-0000-00000000000{i}'" for i in range(5)),
    "date": ("'2024-01-31'", "'0044-03-15 BC'", "'infinity'", "'2000-02-29'", "'1999-12-31'"),
    "timestamptz": (
        "'2024-01-31 10:00:00.5+00'",
        "'-infinity'",
        "'2000-02-29 00:00:00+00'",
        "'1969-12-31 23:00:00+00'",
    ),
    "mood": ("'zzz'", "'aaa'", "'mmm'"),
    "bool": ("true", "false"),
    "jsonb": ("'1.50'", """'{"a": 1, "b": [1, null]}'""", "'null'", """'{"a": "x"}'"""),
    "interval": ("'1 mon'", "'30 days'", "'-1 day 00:00:00.5'", "'720:00:00'"),
}
_KEYS = ("int", "bigint", "text", "uuid", "numeric", "char(4)", "date", "timestamptz", "mood", "varchar(9)")
_ALIKE = {
    "int": ("int", "bigint", "numeric"), "bigint": ("bigint", "int"), "numeric": ("numeric", "int"),
    "char(4)": ("char(4)", "char(6)", "text"), "text": ("text", "varchar(9)"), "varchar(9)": ("text", "varchar(9)"),
}  # fmt: skip
_VALUES = {
    "i": "int", "n": "numeric", "t": "text", "d": "date", "z": "timestamptz", "b": "bool", "j": "jsonb", "e": "mood",
    "v": "interval", "c": "char(4)",
}  # fmt: skip


@dataclass
class Schema:
    """Kinds of keys by table. ``links``: of a table, the kind of its column that refers to another."""

    chance: random.Random
    keys: dict[str, str] = field(default_factory=dict)
    second: set[str] = field(default_factory=set)
    links: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in TABLES:
            self.keys[table] = self.chance.choice(_KEYS)
            if self.chance.random() < 0.3:
                self.second.add(table)
        for one in TABLES:
            for other in TABLES:
                kind = self.keys[other]
                self.links[one, other] = self.chance.choice(_ALIKE.get(kind, (kind,)))

    def columns(self, table: str) -> dict[str, str]:
        """Names and kinds of a table's columns, its key first."""
        second = {"k2": "int"} if table in self.second else {}
        links = {f"r{other}": self.links[table, other] for other in TABLES}
        return {"k": self.keys[table], **second, **links, "q": "int", **_VALUES}

    def statements(self) -> list[str]:
        """What makes the tables."""
        made = ["create type mood as enum ('zzz', 'mmm', 'aaa')"]
        for table in TABLES:
            columns = ", ".join(f"{name} {kind}" for name, kind in self.columns(table).items())
            key = "k, k2" if table in self.second else "k"
            made.append(f"create table {table} ({columns}, primary key ({key}))")
        return made

    def changes(self, count: int) -> list[str]:
        """Statements: rows put, changed, moved to another key or parent, deleted."""
        return [self._change() for _ in range(count)]

    def _change(self) -> str:
        chance, table = self.chance, self.chance.choice(TABLES)
        columns = self.columns(table)
        if chance.random() < 0.45:
            values = ", ".join(self._value(name, kind) for name, kind in columns.items())
            return f"insert into {table} ({', '.join(columns)}) values ({values}) on conflict do nothing"
        where = f"k = {chance.choice(_POOLS[columns['k']])}"
        kind = chance.random()
        if kind < 0.2:
            return f"delete from {table} where {where}"
        if kind < 0.3:
            key = self._value("k", columns["k"])
            taken = f"exists (select from {table} where k = {key})"
            one = f"ctid = (select min(ctid) from {table} where {where})"
            return f"update {table} set k = {key} where {one} and not {taken}"
        name = chance.choice([name for name in columns if name not in ("k", "k2")])
        return f"update {table} set {name} = {self._value(name, columns[name])} where {where}"

    def _value(self, name: str, kind: str) -> str:
        if name not in ("k", "k2") and self.chance.random() < 0.2:
            return "null"
        return self.chance.choice(_POOLS[kind][:3] if name == "k2" else _POOLS[kind])


class Text:
    """The text of one view. ``counted``: its constructs."""

    def __init__(self, schema: Schema, chance: random.Random) -> None:
        self._schema, self._chance = schema, chance
        self._aliases = 0
        self._with: list[str] = []
        self.counted: Counter[str] = Counter()
        self.sql = self._view()

    def _is(self, share: float) -> bool:
        return self._chance.random() < share

    def _one(self, *forms: str) -> str:
        return self._chance.choice(forms)

    def _alias(self) -> str:
        self._aliases += 1
        return f"x{self._aliases}"

    def _key(self, alias: str, table: str) -> list[str]:
        kind = self._schema.keys[table]
        first = f'{alias}.k collate "C"' if kind in ("text", "varchar(9)", "char(4)") else f"{alias}.k"
        first = f'{alias}.k::text collate "C"' if kind == "mood" else first
        return [first, *([f"{alias}.k2"] if table in self._schema.second else [])]

    def _tie(self, child: str, parent: str, table: str) -> str:
        """``child`` refers to ``parent``, a row of ``table``."""
        sides = [f"{child}.r{table}", f"{parent}.k"]
        self._chance.shuffle(sides)
        tie = " = ".join(sides)
        return tie + (f" and {child}.q = {parent}.k2" if table in self._schema.second else "")

    def _view(self) -> str:
        root, table = self._alias(), self._chance.choice(TABLES)
        scope = [(root, table)]
        source, reach = self._joined(root, table, scope, 2)
        outputs = [f"{root}.k", *([f"{root}.k2"] if table in self._schema.second else [])]
        for number in range(self._chance.randint(1, 4)):
            outputs.append(f"{self._output(reach, 2)} as o{number}")
        if self._is(0.25):
            source, more = self._lateral(source, reach)
            outputs += more
        if self._is(0.25):
            source, more = self._grouped_with(source, root, table)
            outputs += more
        where = f" where {self._condition(reach, 2)}" if self._is(0.4) else ""
        named = f"with {', '.join(self._with)} " if self._with else ""
        return f"{named}select {', '.join(outputs)} from {source}{where}"

    def _joined(
        self, alias: str, table: str, scope: list[tuple[str, str]], most: int
    ) -> tuple[str, list[tuple[str, str]]]:
        """A table with rows that it refers to, each tied by its key."""
        source, reach = f"{table} {alias}", list(scope)
        for _ in range(self._chance.randint(0, most)):
            from_alias, _from_table = self._chance.choice([pair for pair in reach if pair[0] in source.split()])
            other, to = self._alias(), self._chance.choice(TABLES)
            kind = self._one("left join", "left join", "join")
            self.counted[kind] += 1
            self.counted["self join"] += to == table
            more = f" and {self._condition([(other, to)], 0)}" if self._is(0.15) else ""
            source += f" {kind} {to} {other} on {self._tie(from_alias, other, to)}{more}"
            reach.append((other, to))
        return source, reach

    def _children(self, reach: list[tuple[str, str]], deep: int) -> tuple[str, str, list[tuple[str, str]], list[str]]:
        """FROM and WHERE of rows that refer to one in reach, all that they reach, and their keys."""
        parent, table = self._chance.choice(reach)
        alias, child = self._alias(), self._chance.choice(TABLES)
        source, inner = self._joined(alias, child, [(alias, child)], 1 if deep else 0)
        where = self._tie(alias, parent, table)
        if self._is(0.3):
            where += f" and {self._condition(inner, deep - 1)}"
        keys = [key for pair in inner for key in self._key(*pair)]
        return source, where, [*inner, (parent, table)], keys

    def _output(self, reach: list[tuple[str, str]], deep: int) -> str:
        if deep and self._is(0.6):
            return self._subquery(reach, deep)
        return self._value(reach, 2)

    def _subquery(self, reach: list[tuple[str, str]], deep: int) -> str:  # noqa: C901, PLR0911, PLR0912
        source, where, inner, keys = self._children(reach, deep)
        order = ", ".join(keys)
        form = self._one("count", "sum", "json_agg", "jsonb_agg", "string_agg", "array_agg", "array", "exists", "limit",
                         "minmax", "object_agg", "bool", "having", "in", "distinct", "first of grouped")  # fmt: skip
        self.counted[form] += 1
        tail = f" from {source} where {where}"
        filtered = ""
        if self._is(0.2):
            self.counted["filter"] += 1
            filtered = f" filter (where {self._condition(inner[:-1], 0)})"
        own = inner[:-1]
        match form:
            case "count":
                return (
                    f"(select count({self._one('*', self._value(own, 1), f'distinct {own[0][0]}.n')}){filtered}{tail})"
                )
            case "sum":
                return f"(select {self._one('sum', 'avg')}({self._number(own, 1)}){filtered}{tail})"
            case "minmax":
                return (
                    f"(select {self._one('min', 'max')}({own[0][0]}.{self._one('i', 'n', 'd', 'z')}){filtered}{tail})"
                )
            case "bool":
                return f"(select {self._one('bool_and', 'bool_or')}({self._condition(own, 0)}){filtered}{tail})"
            case "json_agg" | "jsonb_agg":
                binary = "b" * (form == "jsonb_agg")
                item = f"json{binary}_build_object('k', {self._value(inner, 1)}, 's', {self._output(own, deep - 1)})"
                item = self._one(item, item, f"to_json{binary}({own[0][0]})", self._value(inner, 2))
                descending = self._one("", " desc", " desc nulls last", " nulls first")
                lead = f"{own[0][0]}.{self._one('i', 'n', 'd', 'b', 'z')}{descending}, "
                return f"(select {form}({item} order by {lead}{order}){filtered}{tail})"
            case "string_agg":
                return f"(select string_agg({own[0][0]}.t, ',' order by {order}){filtered}{tail})"
            case "array_agg":
                column = self._one("i", "n", "t", "d", "e", "v", "c")
                return f"(select array_agg({own[0][0]}.{column} order by {order}){filtered}{tail})"
            case "array":
                return f"array(select {own[0][0]}.{self._one('i', 'n', 't', 'e')}{tail} order by {order})"
            case "object_agg":
                return f"(select json_object_agg({keys[0]}, {self._value(own, 1)} order by {order}){filtered}{tail})"
            case "exists":
                return f"exists (select 1{tail})"
            case "limit":
                lead = f"{own[0][0]}.{self._one('i', 'n', 'd')} desc nulls last"
                return f"(select {self._value(own, 1)}{tail} order by {lead}, {order} limit 1)"
            case "having":
                return f"(select count(*){tail} having count(*) > 1)"
            case "in":
                # What is compared is a column of the table that ties.
                return f"({reach[0][0]}.i in (select {own[0][0]}.i{tail}))"
            case "distinct":
                return f"(select array_agg(distinct {own[0][0]}.{self._one('i', 'n', 'd', 'b')}){tail})"
            case _:
                by = self._one("i", "b", "n")
                return (
                    f"(select json_build_object('g', {own[0][0]}.{by}, 'c', count(*)){tail} group by {own[0][0]}.{by}"
                    f" order by count(*) desc, {own[0][0]}.{by} limit 1)"
                )

    def _lateral(self, source: str, reach: list[tuple[str, str]]) -> tuple[str, list[str]]:
        inside, where, inner, keys = self._children(reach, 1)
        alias, own = self._alias(), inner[0][0]
        self.counted["lateral"] += 1
        if self._is(0.5):
            query = f"select count(*) as c, sum({self._number(inner[:-1], 1)}) as s from {inside} where {where}"
        else:
            query = f"select {own}.i as c, {own}.t as s from {inside} where {where} order by {', '.join(keys)} limit 1"
        return f"{source} left join lateral ({query}) {alias} on true", [f"{alias}.c as lc", f"{alias}.s as ls"]

    def _grouped_with(self, source: str, root: str, table: str) -> tuple[str, list[str]]:
        """A grouped query in WITH, tied by what it is grouped by."""
        if table in self._schema.second:
            return source, []
        child, alias, name = self._chance.choice(TABLES), self._alias(), f"w{self._alias()}"
        having = self._one("", " having count(*) > 1")
        self.counted["with"] += 1
        self._with.append(
            f"{name} as (select r{table} as r, count(*) as c, max(n) as m from {child} group by r{table}{having})"
        )
        return f"{source} left join {name} {alias} on {alias}.r = {root}.k", [f"{alias}.c as wc", f"{alias}.m as wm"]

    def _number(self, reach: list[tuple[str, str]], deep: int) -> str:
        alias = self._chance.choice(reach)[0]
        if not deep:
            return self._one(f"{alias}.i", f"{alias}.n", "2", "1.50")
        a, b = self._number(reach, deep - 1), self._number(reach, deep - 1)
        return self._one(a, f"({a} + {b})", f"({a} * {b})", f"round({a} / 3.0, 2)", f"({a})::numeric / 7",
                         f"coalesce({a}, 0)", f"abs({a})", f"nullif({a}, 2)")  # fmt: skip

    def _value(self, reach: list[tuple[str, str]], deep: int) -> str:  # noqa: C901, PLR0911, PLR0912
        alias = self._chance.choice(reach)[0]
        if not deep:
            return f"{alias}.{self._one(*_VALUES)}"
        value = self._value(reach, deep - 1)
        kind = self._one("column", "column", "key", "number", "case", "json", "jsonb", "array", "string", "time",
                         "text", "cast", "path", "coalesce", "row")  # fmt: skip
        self.counted[f"value: {kind}"] += 1
        match kind:
            case "key":
                return f"{alias}.k"
            case "number":
                return self._number(reach, deep)
            case "case":
                return f"case when {self._condition(reach, 0)} then {alias}.i when {alias}.b then 7 end"
            case "json" | "jsonb":
                return f"{kind}_build_object('a', {value}, 'b', {self._value(reach, deep - 1)})"
            case "array":
                return f"array[{alias}.i, {self._chance.choice(reach)[0]}.i]"
            case "string":
                return self._one(f"{alias}.t || '-' || {alias}.i", f"substr({alias}.t, 0, 2)", f"length({alias}.c)",
                                 f"concat_ws('/', {alias}.t, {alias}.c, {alias}.b)", f"upper({alias}.t collate \"C\")",
                                 f"lpad({alias}.t, 3, 'xy')")  # fmt: skip
            case "time":
                return self._one(f"date_trunc('month', {alias}.z)", f"extract(dow from {alias}.d)", f"{alias}.z::date",
                                 f"{alias}.d + 1", f"{alias}.z + interval '1 mon'", f"extract(epoch from {alias}.z)",
                                 f"date_bin('1 day', {alias}.z, '2000-01-01')")  # fmt: skip
            case "text":
                return f"{alias}.{self._one('i', 'n', 'd', 'z', 'b', 'e', 'v', 'c')}::text"
            case "cast":
                return self._one(
                    f"{alias}.i::numeric(9, 2)", f"{alias}.i::text", f"{alias}.b::int", f"{alias}.i::float8"
                )
            case "path":
                return self._one(f"{alias}.j -> 'a'", f"{alias}.j ->> 'a'", f"{alias}.j -> 'b' -> 0")
            case "coalesce":
                return self._one(f"coalesce({alias}.t, 'none')", f"coalesce({alias}.n, {alias}.i, 0)",
                                 f"greatest({alias}.i, {alias}.n)",
                                 f"coalesce({alias}.d, {alias}.z::date)")  # fmt: skip
            case "row":
                return f"row_to_json({alias})"
        return f"{alias}.{self._one(*_VALUES)}"

    def _condition(self, reach: list[tuple[str, str]], deep: int) -> str:
        alias = self._chance.choice(reach)[0]
        if deep > 0 and self._is(0.4):
            source, where, inner, _ = self._children(reach, 0)
            self.counted["where exists"] += 1
            if self._is(0.3):
                return f"{alias}.i in (select {inner[0][0]}.i from {source} where {where})"
            return f"{self._one('', 'not ')}exists (select 1 from {source} where {where})"
        one = self._one(f"{alias}.i > 2", f"{alias}.n = 2", f"{alias}.t in ('a', 'C', null)", f"{alias}.b",
                        f"{alias}.t like 'a%'",
                        f"{alias}.d is not null", f"{alias}.e = 'aaa'", f"{alias}.i is distinct from {alias}.n",
                        f"{alias}.v = '30 days'", f"{alias}.c = 'a'", f"{alias}.i between 2 and 4",
                        f"{alias}.t not in ('a', 'b')", f"{alias}.b is not true", f"{alias}.j = '1.5'")  # fmt: skip
        if self._is(0.2):
            other = self._condition(reach, 0)
            return self._one(f"({one} or {other})", f"({one} and {other})", f"not ({one} and {other})")
        return one
