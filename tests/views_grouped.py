"""Texts of views of groups made up by seed, over the tables of :mod:`tests.views_generated`."""

from __future__ import annotations

from tests.views_generated import TABLES, Text


class GroupText(Text):
    """The text of one view whose rows are groups."""

    def _view(self) -> str:
        """Columns of its key, figures, and what follows from a table's key."""
        root, table = self._alias(), self._chance.choice(TABLES)
        source, reach = self._joined(root, table, [(root, table)], 2)
        taken_apart = self._is(0.25)
        if taken_apart:
            self.counted["root in a query"] += 1
            inner = self._alias()
            where = f" where {self._condition([(inner, table)], 0)}" if self._is(0.6) else ""
            source = source.replace(f"{table} {root}", f"(select {inner}.* from {table} {inner}{where}) {root}", 1)
        keys = [self._group_key(reach) for _ in range(self._chance.choice([0, 1, 1, 1, 2, 2, 3]))]
        self.counted[f"group by {len(keys)}"] += 1
        if self._is(0.25):
            source, window = self._windows(source, reach)
            keys += [window] if self._is(0.7) else []
        more: list[str] = []
        if keys and self._is(0.3):
            self.counted["group by a key of a table"] += 1
            alias, table = self._chance.choice(reach)
            keys += [self._key_column(alias, table), *([f"{alias}.k2"] if table in self._schema.second else [])]
            more = [f"{alias}.{self._one('t', 'i', 'd', 'b', 'j', 'v')}", f'upper({alias}.t collate "C")']
            # Where the table's own key is changed in the text, nothing follows from it.
            # Nor does it from a query's, for Postgres.
            more = [] if taken_apart and alias == root else more
            more = more if keys[-1].endswith((".k", ".k2")) and f"{alias}.k" in keys else []
        figures = [self._figure(reach) for _ in range(self._chance.randint(1, 4))]
        outputs = [f"{one} as g{number}" for number, one in enumerate([*keys, *more, *figures])]
        where = f" where {self._condition(reach, 1)}" if self._is(0.4) else ""
        named = [one if self._is(0.5) else str(number) for number, one in enumerate(keys, start=1)]
        by = f" group by {', '.join(named)}" if keys else ""
        having = self._one("", "", f" having count(*) > {self._one('1', '2')}", " having bool_or(true)")
        return f"select {', '.join(outputs)} from {source}{where}{by}{having}"

    def _windows(self, source: str, reach: list[tuple[str, str]]) -> tuple[str, str]:
        """Rows that stand in several groups, or in none, and the column that says in which."""
        alias, name = self._chance.choice(reach)[0], self._alias()
        time = f"nullif({alias}.z, '-infinity')"
        series = self._one(
            f"{alias}.i, 4", f"{alias}.i, {alias}.q, -2", f"{alias}.q, 5, 1 + {alias}.i % 2",
            f"date_trunc('month', {time}), {time}, interval '10 days 1 hour'",
            f"date_bin('12 hours', {time}, '2000-01-01') - interval '1 day', {time}, '12 hours'",
        )  # fmt: skip
        kind = self._one("cross join lateral", "cross join", "left join lateral")
        self.counted[f"series: {kind}"] += 1
        on = self._one(" on true", f" on {self._condition(reach, 0)}") if kind == "left join lateral" else ""
        return f"{source} {kind} generate_series({series}) as {name} (w){on}", f"{name}.w"

    def _key_column(self, alias: str, table: str) -> str:
        kind = self._schema.keys[table]
        return f"{alias}.k::numeric(9, 2)" if kind == "numeric" else f"{alias}.k"

    def _group_key(self, reach: list[tuple[str, str]]) -> str:
        alias, table = self._chance.choice(reach)
        form = self._one("i", "b", "d", "z", "e", "t", "c", "key", "day", "field", "scale", "rest", "coalesce", "case")
        self.counted[f"group by: {form}"] += 1
        forms = {
            "key": self._key_column(alias, table),
            "day": self._one(f"date_trunc('month', {alias}.z)", f"date_bin('12 hours', {alias}.z, '2000-01-01')"),
            "field": self._one(f"extract(dow from {alias}.d)", f"extract(epoch from {alias}.z)"),
            "scale": self._one(f"round({alias}.n, 1)", f"{alias}.n::numeric(9, 2)", f"floor({alias}.n)"),
            "rest": f"{alias}.i % 2",
            "coalesce": f"coalesce({alias}.t, 'none')",
            "case": f"case when {self._condition([(alias, table)], 0)} then {alias}.i end",
        }
        return forms.get(form, f"{alias}.{form}")

    def _figure(self, reach: list[tuple[str, str]]) -> str:
        alias = self._chance.choice(reach)[0]
        order = ", ".join(key for pair in reach for key in self._key(*pair))
        direction = self._one("", " desc", " desc nulls last", " nulls first")
        lead = f"{alias}.{self._one('i', 'n', 'd', 'b', 'z')}{direction}"
        form = self._one("count", "sum", "avg", "minmax", "bool", "different", "first", "array", "json", "string")
        self.counted[f"figure: {form}"] += 1
        filtered = f" filter (where {self._condition(reach, 0)})" if self._is(0.25) else ""
        binary = self._one("", "b")
        forms = {
            "count": f"count({self._one('*', self._value(reach, 1))})",
            "sum": f"sum({self._number(reach, 1)})",
            "avg": f"avg({self._number(reach, 1)})",
            "minmax": f"{self._one('min', 'max')}({alias}.{self._one('i', 'n', 'd', 'z')})",
            "bool": f"{self._one('bool_and', 'bool_or')}({self._condition(reach, 0)})",
            "different": f"count(distinct {alias}.{self._one('i', 'n', 't', 'd', 'c', 'v')})",
            "array": f"array_agg({alias}.{self._one('i', 'n', 't', 'd', 'e', 'v')} order by {lead}, {order})",
            "json": f"json{binary}_agg({self._value(reach, 1)} order by {lead}, {order})",
            "string": f"string_agg({alias}.t, ',' order by {lead}, {order})",
        }
        if form == "first":
            return f"(array_agg({self._value(reach, 1)} order by {lead}, {order}){filtered})[1]"
        return f"{forms[form]}{filtered}"
