"""Values from one type to another, and to text and JSON: what a cast does, and what is written of a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any

from cdc.views import calendar_days as cal
from cdc.views import decimals as dec
from cdc.views.json_values import array_json, json_number, jsonb_text, parsed, quoted
from cdc.views.sql_types import EQUATED, FLOAT8, NUMERIC, ORDERED, TEXT, TIMESTAMP, TIMESTAMPTZ, Group, SqlType
from cdc.views.syntax import NotComputable, ViewText
from cdc.views.terms import Const, Expr, FunctionCall
from cdc.views.text_values import hex_text, unpadded

Function = Callable[[Any], Any]


def bool_text(value: bool) -> str:
    """As Postgres prints it when cast."""
    return "true" if value else "false"


def bool_of(text: str) -> bool:
    """Text as bool reads it. Raises NotComputable for a word that bool does not know."""
    word = text.strip().lower()
    if (word and any(name.startswith(word) for name in ("true", "yes"))) or word in ("on", "1"):
        return True
    if (word and any(name.startswith(word) for name in ("false", "no"))) or word in ("off", "of", "0"):
        return False
    raise NotComputable("invalid input syntax for type boolean")


def uuid_of(text: str) -> str:
    """Text as uuid reads it: hex digits, with hyphens or without, in braces or not.

    Raises NotComputable unless there are 32 of them.
    """
    digits = text.strip().strip("{}").replace("-", "").lower()
    if len(digits) != 32 or not all(c in "0123456789abcdef" for c in digits):
        raise NotComputable("invalid input syntax for type uuid")
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def json_of(text: str) -> str:
    """Text as json keeps it."""
    parsed(text)
    return text


def _stamptz_text(micros: int) -> str:
    return cal.timestamp_text(micros, zone="+00")


_TO_TEXT: Mapping[Group, Function] = MappingProxyType(
    {
        Group.BOOLEAN: bool_text,
        Group.INTEGER: str,
        Group.NUMERIC: dec.numeric_text,
        Group.FLOAT: dec.float_text,
        Group.DATE: cal.date_text,
        Group.TIME: cal.time_text,
        Group.TIMESTAMP: cal.timestamp_text,
        Group.TIMESTAMPTZ: _stamptz_text,
        Group.INTERVAL: cal.interval_text,
        Group.BYTEA: hex_text,
    }
)


def to_text(kind: SqlType) -> Function | None:
    """How a value becomes the text that a cast to text gives. None where it is that text."""
    return unpadded if kind.kind == "bpchar" else _TO_TEXT.get(kind.group)


def _json_text(value: int, between: str = "T", zone: str = "") -> str:
    return f'"{cal.timestamp_text(value, between, zone)}"'


_TO_JSON: Mapping[Group, Function] = MappingProxyType(
    {
        Group.BOOLEAN: bool_text,
        Group.INTEGER: str,
        Group.NUMERIC: lambda v: json_number(dec.numeric_text(v)),
        Group.FLOAT: lambda v: json_number(dec.float_text(v)),
        Group.DATE: lambda v: f'"{cal.date_text(v)}"',
        Group.TIME: lambda v: f'"{cal.time_text(v)}"',
        Group.TIMESTAMP: _json_text,
        Group.TIMESTAMPTZ: lambda v: _json_text(v, "T", "" if abs(v) == cal.INFINITY else "+00:00"),
        Group.INTERVAL: lambda v: f'"{cal.interval_text(v)}"',
        Group.BYTEA: lambda v: quoted(hex_text(v)),
    }
)


def to_json(kind: SqlType, binary: bool) -> Function | None:
    """How a value that is not null becomes JSON text. None where it is that text. ``binary``: as jsonb prints it."""
    if kind.array:
        member = to_json(kind.element, binary) or str
        join = (lambda v: jsonb_text(array_json(v, _or_null(member)))) if binary else None
        return join or (lambda v: array_json(v, _or_null(member)))
    if kind.group is Group.JSONB:
        return None
    if kind.group in (Group.JSON, Group.RECORD):
        return jsonb_text if binary else None
    if kind.group is Group.FLOAT and binary:
        return lambda v: json_number(dec.numeric_text(dec.numeric_of(dec.float_text(v))))
    if kind.kind == "float4":
        return (lambda v: json_number(dec.numeric_text(dec.numeric_of(v)))) if binary else json_number
    return _TO_JSON.get(kind.group, quoted)


def _or_null(member: Function) -> Function:
    return lambda value: "null" if value is None else member(value)


def _cut(length: int) -> Function:
    return lambda text: text[:length]


def _padded(length: int) -> Function:
    return lambda text: text[:length].ljust(length)


_OF_TEXT: Mapping[str, Function] = MappingProxyType(
    {
        "bool": bool_of,
        "int2": lambda t: dec.int_of("int2", t),
        "int4": lambda t: dec.int_of("int4", t),
        "int8": lambda t: dec.int_of("int8", t),
        "numeric": dec.numeric_of,
        "float8": dec.float_of,
        "date": cal.date_of,
        "time": cal.time_of,
        "timestamp": cal.timestamp_of,
        "timestamptz": lambda t: cal.timestamp_of(t, zoned=True),
        "interval": cal.interval_of,
        "uuid": uuid_of,
        "json": json_of,
        "jsonb": jsonb_text,
    }
)


def of_text(kind: SqlType) -> Function | None:
    """How text is read as a type. None where it is the text. KeyError where this engine cannot."""
    if kind.group in (Group.TEXT, Group.ENUM):
        return None
    if kind.array or kind.kind not in _OF_TEXT:
        raise KeyError(str(kind))
    return _OF_TEXT[kind.kind]


def _between_integers(kind: str) -> Function:
    return lambda v: dec.bounded(kind, v)


@cache
def cast(source: SqlType, target: SqlType) -> Function | None:
    """How a value of one type becomes one of another. None: it stays as it is. KeyError: this engine cannot.

    The same function for the same types: expressions that are written alike are one.
    """
    if source.array or target.array:
        if source.array and target.array and source.element == target.element:
            return None
        raise KeyError(f"{source} to {target}")
    convert = _cast(source, target)
    fit = _fit(target)
    if fit is None or (source.kind == target.kind and source.typmod == target.typmod):
        return convert
    return fit if convert is None else (lambda v: fit(convert(v)))


def _fit(target: SqlType) -> Function | None:
    """Apply a declared length or scale to a value."""
    if target.typmod < 0:
        return None
    if target.kind == "numeric":
        return lambda v: dec.fitted(v, target.typmod)
    if target.kind in ("varchar", "bpchar"):
        length = target.typmod - 4
        return _cut(length) if target.kind == "varchar" else _padded(length)
    raise KeyError(f"{target} with a precision")


def _cast(source: SqlType, target: SqlType) -> Function | None:
    if source.kind == target.kind:
        return None
    if source.group is Group.RECORD:
        raise KeyError("the text of a row is not the JSON that it is here")
    if target.group is Group.TEXT:
        return to_text(source) if source.group is not Group.TEXT else unpadded if source.kind == "bpchar" else None
    if source.group is Group.TEXT:
        convert = of_text(target)
        return convert if source.kind != "bpchar" or convert is None else (lambda v: convert(unpadded(v)))
    return _CASTS[source.group, target.group](target)


_MAKERS: dict[tuple[Group, Group], Callable[[SqlType], Function | None]] = {
    (Group.INTEGER, Group.INTEGER): lambda t: _between_integers(t.kind),
    (Group.INTEGER, Group.NUMERIC): lambda t: Decimal,
    (Group.INTEGER, Group.FLOAT): lambda t: float,
    (Group.NUMERIC, Group.INTEGER): lambda t: lambda v: dec.to_int(t.kind, v),
    (Group.NUMERIC, Group.FLOAT): lambda t: float,
    (Group.FLOAT, Group.INTEGER): lambda t: lambda v: dec.float_to_int(t.kind, v),
    (Group.FLOAT, Group.NUMERIC): lambda t: dec.numeric_of_float,
    (Group.INTEGER, Group.BOOLEAN): lambda t: bool,
    (Group.BOOLEAN, Group.INTEGER): lambda t: int,
    (Group.DATE, Group.TIMESTAMP): lambda t: cal.timestamp_of_date,
    (Group.DATE, Group.TIMESTAMPTZ): lambda t: cal.timestamp_of_date,
    (Group.TIMESTAMP, Group.DATE): lambda t: cal.date_of_timestamp,
    (Group.TIMESTAMPTZ, Group.DATE): lambda t: cal.date_of_timestamp,
    (Group.TIMESTAMP, Group.TIMESTAMPTZ): lambda t: None,
    (Group.TIMESTAMPTZ, Group.TIMESTAMP): lambda t: None,
    (Group.TIMESTAMP, Group.TIME): lambda t: cal.time_of_timestamp,
    (Group.TIMESTAMPTZ, Group.TIME): lambda t: cal.time_of_timestamp,
    (Group.JSON, Group.JSONB): lambda t: jsonb_text,
    (Group.JSONB, Group.JSON): lambda t: None,
}
_CASTS: Mapping[tuple[Group, Group], Callable[[SqlType], Function | None]] = MappingProxyType(_MAKERS)


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
