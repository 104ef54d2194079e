"""A parsed condition as a part of a statement: identifiers quoted, literals as literals, operators of a closed list.

A literal stands without a type, so Postgres gives it the type of the column that it is compared with.
"""

from __future__ import annotations

from types import MappingProxyType

from psycopg import sql

from cdc.condition import (
    All,
    Among,
    Between,
    ColumnName,
    Compared,
    Condition,
    Either,
    Like,
    Not,
    Null,
    NumberLiteral,
    Text,
    Truth,
    Value,
)

_SIGNS = MappingProxyType(
    {
        "=": sql.SQL("="),
        "<>": sql.SQL("<>"),
        "<": sql.SQL("<"),
        "<=": sql.SQL("<="),
        ">": sql.SQL(">"),
        ">=": sql.SQL(">="),
    }
)
_LIKE = MappingProxyType({False: sql.SQL("like"), True: sql.SQL("ilike")})
_NOT = MappingProxyType({False: sql.SQL(""), True: sql.SQL("not ")})
_AND, _OR, _COMMA = sql.SQL(" and "), sql.SQL(" or "), sql.SQL(", ")


def as_sql(condition: Condition) -> sql.Composable:
    """The condition, in parentheses."""
    return sql.SQL("({})").format(_part(condition))


def _part(condition: Condition) -> sql.Composable:  # noqa: PLR0911 - one case for each part of the grammar
    match condition:
        case ColumnName():
            return _value(condition)
        case Compared(left, sign, right):
            return sql.Composed([_value(left), sql.SQL(" "), _SIGNS[sign], sql.SQL(" "), _value(right)])
        case Among(column, values, negated):
            found = _COMMA.join(map(_value, values))
            return sql.SQL("{} {}in ({})").format(_value(column), _NOT[negated], found)
        case Between(column, low, high, negated):
            return sql.SQL("{} {}between {} and {}").format(_value(column), _NOT[negated], _value(low), _value(high))
        case Like(column, pattern, any_case, negated):
            return sql.SQL("{} {}{} {}").format(_value(column), _NOT[negated], _LIKE[any_case], _value(pattern))
        case Null(column, negated):
            return sql.SQL("{} is {}null").format(_value(column), _NOT[negated])
        case Not(inner):
            return sql.SQL("not {}").format(as_sql(inner))
        case All(conditions):
            return _AND.join(map(as_sql, conditions))
        case Either(conditions):
            return _OR.join(map(as_sql, conditions))


def _value(value: Value) -> sql.Composable:
    match value:
        case ColumnName(name):
            return sql.Identifier(name)
        case Text(text):
            return sql.Literal(text)
        case NumberLiteral(number):
            return sql.Literal(number)
        case Truth(truth):
            return sql.Literal(truth)
