"""Types that meet: the casts that Postgres makes by itself, and those that the text asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc.views.conversions import cast, of_text
from cdc.views.refused import NotComputable
from cdc.views.sql_types import EQUATED, FLOAT8, NUMERIC, ORDERED, TEXT, TIMESTAMP, TIMESTAMPTZ, Group, SqlType
from cdc.views.syntax import ViewText
from cdc.views.terms import Const, Expr, FunctionCall

_STEPS = ("int2", "int4", "int8", "numeric", "float8")
_TYPE_NAMES = {
    "int2": "int2",
    "smallint": "int2",
    "int": "int4",
    "int4": "int4",
    "integer": "int4",
    "int8": "int8",
    "bigint": "int8",
    "numeric": "numeric",
    "decimal": "numeric",
    "float8": "float8",
    "bool": "bool",
    "boolean": "bool",
    "text": "text",
    "varchar": "varchar",
    "bpchar": "bpchar",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "interval": "interval",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "jsonb",
}


def named_type(text: ViewText, names: Sequence[str], modifiers: Sequence[int], array: bool, location: int) -> SqlType:
    """A type by its name in the text. ``modifiers``: what stands in its parentheses."""
    kind = _TYPE_NAMES.get(names[-1])
    if kind is None:
        hint = "types of a view's casts: " + ", ".join(sorted(set(_TYPE_NAMES.values())))
        raise text.refused(f"a view does not cast to {names[-1]}", location, word=names[-1], hint=hint)
    typmod = -1
    if modifiers and kind == "numeric":
        scale = modifiers[1] if len(modifiers) > 1 else 0
        typmod = (modifiers[0] << 16 | scale & 0x7FF) + 4
    elif modifiers and kind in ("varchar", "bpchar"):
        typmod = modifiers[0] + 4
    elif modifiers:
        raise text.refused(f"a view does not cast to {names[-1]} with a precision", location, word=names[-1])
    return SqlType(kind, array, typmod)


def coerced(text: ViewText, expression: Expr, target: SqlType, location: int = -1) -> Expr:
    """An expression cast to a type. A literal is read now. ViewRefused where it cannot be."""
    source = expression.type
    if source == target:
        return expression
    where = location if location >= 0 else expression.location
    if isinstance(expression, Const) and source.kind == "unknown":
        return _literal(text, expression, target, where)
    if isinstance(expression, Const) and expression.value is None:
        return replace(expression, type=target)
    try:
        function = cast(source, target)
    except KeyError:
        hint = "row_to_json(…) of it" if source.kind == "record" else ""
        raise text.refused(f"a view does not cast {source} to {target}", where, hint=hint) from None
    if function is None:
        return replace(expression, type=target)
    if isinstance(expression, Const):
        return replace(expression, type=target, value=_computed(text, function, expression.value, where))
    same = _same_value(source, target)
    return FunctionCall(type=target, function=function, args=(expression,), location=where, same_value=same)


def _same_value(source: SqlType, target: SqlType) -> bool:
    """Whether values are equal after the cast exactly where they were before."""
    if target.typmod >= 0:
        return False
    if source.kind in _STEPS[:3] and target.kind in _STEPS[:4]:
        return _STEPS.index(source.kind) <= _STEPS.index(target.kind)
    return source.kind == "bpchar" and target.group is Group.TEXT


def _literal(text: ViewText, expression: Const, target: SqlType, location: int) -> Const:
    value = expression.value
    if value is not None:
        try:
            read = of_text(SqlType(target.kind, target.array))
        except KeyError:
            raise text.refused(f"a view does not read a literal of type {target}", location) from None
        if read is not None:
            value = _computed(text, read, value, location)
        if target.typmod >= 0 and (fit := cast(SqlType(target.kind), target)) is not None:
            value = _computed(text, fit, value, location)
    return replace(expression, type=target, value=value)


def _computed(text: ViewText, function: object, value: object, location: int) -> object:
    try:
        return function(value)  # type: ignore[operator]
    except NotComputable as failure:
        raise text.refused(str(failure), location) from None


def common_type(text: ViewText, expressions: Sequence[Expr], location: int) -> SqlType:
    """The type that CASE, COALESCE, IN and a comparison bring their parts to."""
    known = [e.type for e in expressions if e.type.kind != "unknown"]
    if not known:
        return TEXT
    if len({(t.kind, t.array, t.name) for t in known}) == 1:
        same_typmod = len({t.typmod for t in known}) == 1
        return known[0] if same_typmod and len(known) == len(expressions) else replace(known[0], typmod=-1)
    groups = {t.group for t in known}
    if groups <= {Group.INTEGER, Group.NUMERIC, Group.FLOAT} and not any(t.array for t in known):
        kind = max((t.kind for t in known), key=_STEPS.index)
        return {"numeric": NUMERIC, "float8": FLOAT8}.get(kind, SqlType(kind))
    if groups == {Group.TEXT}:
        if {"bpchar", "varchar"} <= {t.kind for t in known}:
            raise text.refused("char(n) is compared with varchar", location, hint="cast one of them to text")
        return TEXT
    if groups <= {Group.DATE, Group.TIMESTAMP, Group.TIMESTAMPTZ}:
        return TIMESTAMPTZ if Group.TIMESTAMPTZ in groups else TIMESTAMP
    names = " and ".join(sorted({str(t) for t in known}))
    raise text.refused(f"{names} have no type in common", location)


def chosen_type(text: ViewText, expressions: Sequence[Expr], location: int) -> SqlType:
    """The type that CASE (its ELSE first), COALESCE, GREATEST and ARRAY bring their parts to: of texts the first."""
    known = [e.type for e in expressions if e.type.kind != "unknown"]
    if len({t.kind for t in known}) > 1 and all(t.group is Group.TEXT and not t.array for t in known):
        return SqlType(known[0].kind)
    return common_type(text, expressions, location)


def written_in_json(text: ViewText, expression: Expr) -> Expr:
    """A value that is to be JSON. A literal is text. ViewRefused where only Postgres knows how JSON has its type."""
    if expression.type.kind == "unknown":
        return coerced(text, expression, TEXT)
    for name, kind in expression.type.members():
        if not kind.known_in_json:
            said = kind.name.removesuffix("[]") + "[]" * kind.array
            one = "a value" if not name else f"the column {name}"
            do = "cast it to text" if not name else f"name the columns, {name}::text among them"
            hint = f"{do}: JSON has a composite as an object, and the log has its text alone"
            raise text.refused(f"a view cannot write {one} of type {said} as JSON", expression.location, hint=hint)
    return expression


def comparable(text: ViewText, kind: SqlType, location: int, *, ordered: bool, collated: bool) -> None:
    """Refuse what this engine does not compare as Postgres does. ``collated``: the text is of the collation C."""
    if kind.group not in (ORDERED if ordered else EQUATED):
        raise text.refused(f"values of type {kind} are not {'ordered' if ordered else 'compared'} here", location)
    if ordered and kind.group is Group.TEXT and not collated:
        hint = 'write collate "C" behind it: other collations order text in ways that only Postgres knows'
        raise text.refused("the order of text depends on its collation", location, hint=hint)
