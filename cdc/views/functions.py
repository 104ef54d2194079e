"""The functions and operators of Postgres that a view may use, each with the types that it takes and what it does.

A signature says the kinds of its arguments. Arguments are cast as Postgres casts them implicitly: integers up to
numeric and float8, dates to timestamps, literals to anything. To add a function, add its row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any

from cdc.views import calendar_days as cal
from cdc.views import decimals as dec
from cdc.views import json_values as js
from cdc.views import text_values as tx
from cdc.views.sql_types import Group, SqlType
from cdc.views.syntax import NotComputable

_BLANK = " \t\n\r\v\f"


@lru_cache(maxsize=1024)
def path_of(text: str) -> tuple[str | None, ...]:
    """The steps of a path. None for NULL, which leads nowhere. NotComputable where Postgres reads no array.

    >>> path_of('{a, 0,"b,c",null}')
    ('a', '0', 'b,c', None)
    """
    stripped = text.strip(_BLANK)
    if len(stripped) < 2 or stripped[0] != "{" or stripped[-1] != "}":
        raise NotComputable("malformed array literal")
    inner = stripped[1:-1]
    if not inner.strip(_BLANK):
        return ()
    steps: list[str | None] = []
    at = 0
    while at <= len(inner):
        step, at = _step(inner, at)
        steps.append(step)
        if at < len(inner) and inner[at] != ",":
            raise NotComputable("malformed array literal")
        at += 1
    return tuple(steps)


def _step(inner: str, at: int) -> tuple[str | None, int]:
    """The element that begins here, and where its comma or the end is."""
    while at < len(inner) and inner[at] in _BLANK:
        at += 1
    in_quotes = inner[at : at + 1] == '"'
    at += in_quotes
    found: list[str] = []
    kept = 0  # Blanks at an unquoted element's end are none of it, unless a backslash is before them.
    escaped = False
    while at < len(inner) and not (inner[at] == '"' if in_quotes else inner[at] in ',{}"'):
        if inner[at] == "\\":
            at, escaped = at + 1, True
            found += inner[at : at + 1]
            kept = len(found)
        else:
            found.append(inner[at])
            kept = kept if inner[at] in _BLANK else len(found)
        at += 1
    if not in_quotes:
        word = "".join(found[:kept])
        if not word:
            raise NotComputable("malformed array literal")
        return (None if word.lower() == "null" and not escaped else word), at
    at += 1
    while at < len(inner) and inner[at] in _BLANK:
        at += 1
    if at > len(inner):
        raise NotComputable("malformed array literal")
    return "".join(found), at


@dataclass(frozen=True, slots=True)
class Signature:
    """``args`` and ``result`` are kinds. ``collated``: letters count, so the text has to be of the collation C.

    ``zoned``: the result depends on the session's time zone, which is UTC for a view.
    """

    name: str
    args: tuple[str, ...]
    result: str
    function: Callable[..., Any]
    collated: bool = False
    zoned: bool = False


def _rows(*rows: tuple[str, str, str, Callable[..., Any]], **said: bool) -> Iterator[Signature]:
    for names, args, result, function in rows:
        for name in names.split():
            yield Signature(name, tuple(args.split()), result, function, **said)


def _power_of_floats(a: float, b: float) -> float:
    if a == 0 and b < 0:
        raise NotComputable("zero raised to a negative power is undefined")
    if a < 0 and math.isfinite(b) and b != math.floor(b):
        raise NotComputable("a negative number raised to a non-integer power yields a complex result")
    try:
        return dec.float_result(math.pow(a, b), a, b, zero=a == 0)
    except (ValueError, OverflowError):
        raise NotComputable("value out of range") from None


def _to_zone_utc(value: int, zone: str) -> int:
    if zone.lower() not in ("utc", "gmt", "z", "etc/utc"):
        raise NotComputable("a time zone other than UTC")
    return value


def _length(text: str) -> int:
    value = js.parsed(text)
    if not isinstance(value, list):
        raise NotComputable("cannot get array length of what is no array")
    return len(value)


def _type_name(text: str) -> str:
    value = js.parsed(text)
    if value is None:
        return "null"
    return {dict: "object", list: "array", bool: "boolean", str: "string"}.get(type(value), "number")


def _has(text: str, key: str) -> bool:
    value = js.parsed(text)
    return key in value if isinstance(value, dict | list) else value == key


def _refused(*_: Any) -> Any:
    """Stands for a function that Postgres has for these types, and a view has not: it is chosen, and then refused."""
    raise NotImplementedError


FUNCTIONS: tuple[Signature, ...] = (
    *_rows(
        ("lower", "text", "text", tx.lower),
        ("upper", "text", "text", tx.upper),
        ("initcap", "text", "text", tx.initcap),
        collated=True,
    ),
    *_rows(
        ("length char_length character_length", "text", "int4", len),
        ("octet_length", "text", "int4", lambda t: len(t.encode())),
        ("octet_length", "bpchar", "int4", lambda t: len(t.encode())),
        ("~~", "bpchar text", "bool", tx.like),
        ("!~~", "bpchar text", "bool", lambda t, p: not tx.like(t, p)),
        ("substr substring", "text int4", "text", tx.substring),
        ("substr substring", "text int4 int4", "text", tx.substring),
        ("left", "text int4", "text", tx.left),
        ("right", "text int4", "text", tx.right),
        ("replace", "text text text", "text", tx.replaced),
        ("split_part", "text text int4", "text", tx.split_part),
        ("lpad", "text int4", "text", tx.padded_left),
        ("lpad", "text int4 text", "text", tx.padded_left),
        ("rpad", "text int4", "text", tx.padded_right),
        ("rpad", "text int4 text", "text", tx.padded_right),
        ("btrim", "text", "text", tx.trimmed),
        ("btrim", "text text", "text", tx.trimmed),
        ("ltrim", "text", "text", tx.trimmed_left),
        ("ltrim", "text text", "text", tx.trimmed_left),
        ("rtrim", "text", "text", tx.trimmed_right),
        ("rtrim", "text text", "text", tx.trimmed_right),
        ("repeat", "text int4", "text", tx.repeated),
        ("reverse", "text", "text", tx.reversed_text),
        ("strpos position", "text text", "int4", tx.place_in),
        ("starts_with", "text text", "bool", str.startswith),
        ("md5", "text", "text", tx.md5),
        ("ascii", "text", "int4", lambda t: ord(t[0]) if t else 0),
        ("||", "text text", "text", str.__add__),
        ("~~", "text text", "bool", tx.like),
        ("!~~", "text text", "bool", lambda t, p: not tx.like(t, p)),
    ),
    *_rows(
        ("~~*", "text text", "bool", tx.ilike),
        ("~~*", "bpchar text", "bool", tx.ilike),
        ("!~~*", "bpchar text", "bool", lambda t, p: not tx.ilike(t, p)),
        ("!~~*", "text text", "bool", lambda t, p: not tx.ilike(t, p)),
        collated=True,
    ),
    *_rows(
        ("abs", "int2", "int2", lambda v: dec.bounded("int2", abs(v))),
        ("abs", "int4", "int4", lambda v: dec.bounded("int4", abs(v))),
        ("abs", "int8", "int8", lambda v: dec.bounded("int8", abs(v))),
        ("abs", "numeric", "numeric", lambda v: v.copy_abs()),
        ("abs", "float8", "float8", abs),
        ("round", "numeric", "numeric", dec.rounded),
        ("round", "numeric int4", "numeric", dec.rounded),
        ("trunc", "numeric", "numeric", dec.truncated),
        ("trunc", "numeric int4", "numeric", dec.truncated),
        ("ceil ceiling", "numeric", "numeric", dec.ceiling),
        ("floor", "numeric", "numeric", dec.floor),
        ("sign", "numeric", "numeric", dec.sign),
        ("mod", "int4 int4", "int4", dec.int_modulo),
        ("mod", "int8 int8", "int8", dec.int_modulo),
        ("mod", "numeric numeric", "numeric", dec.modulo),
        ("mod", "int2 int2", "int2", dec.int_modulo),
        ("round", "float8", "float8", dec.float_rounded),
        ("trunc", "float8", "float8", dec.float_truncated),
        ("ceil ceiling", "float8", "float8", dec.float_ceiling),
        ("floor", "float8", "float8", dec.float_floor),
        ("sign", "float8", "float8", dec.float_sign),
        ("power pow", "float8 float8", "float8", _power_of_floats),
        ("power pow", "numeric numeric", "numeric", _refused),
    ),
    *_rows(
        ("date", "date", "date", lambda v: v),
        ("date", "timestamp", "date", cal.date_of_timestamp),
        ("make_date", "int4 int4 int4", "date", cal.made_date),
    ),
    *_rows(
        ("jsonb_array_length", "jsonb", "int4", _length),
        ("json_array_length", "json", "int4", _length),
        ("jsonb_typeof", "jsonb", "text", _type_name),
        ("json_typeof", "json", "text", _type_name),
        ("->", "json text", "json", lambda t, k: js.member_json(t, k, False)),
        ("->", "jsonb text", "jsonb", lambda t, k: js.member_json(t, k, True)),
        ("->", "json int4", "json", lambda t, k: js.member_json(t, k, False)),
        ("->", "jsonb int4", "jsonb", lambda t, k: js.member_json(t, k, True)),
        ("->>", "json text", "text", lambda t, k: js.member_text(t, k, False)),
        ("->>", "jsonb text", "text", lambda t, k: js.member_text(t, k, True)),
        ("->>", "json int4", "text", lambda t, k: js.member_text(t, k, False)),
        ("->>", "jsonb int4", "text", lambda t, k: js.member_text(t, k, True)),
        ("#>", "json text", "json", lambda t, p: js.path_json(t, path_of(p), False)),
        ("#>", "jsonb text", "jsonb", lambda t, p: js.path_json(t, path_of(p), True)),
        ("#>>", "json text", "text", lambda t, p: js.path_text(t, path_of(p), False)),
        ("#>>", "jsonb text", "text", lambda t, p: js.path_text(t, path_of(p), True)),
        ("?", "jsonb text", "bool", _has),
    ),
    *_rows(("date", "timestamptz", "date", cal.date_of_timestamp), zoned=True),
    *_rows(
        ("timezone", "text timestamptz", "timestamp", lambda z, v: _to_zone_utc(v, z)),
        ("timezone", "text timestamp", "timestamptz", lambda z, v: _to_zone_utc(v, z)),
    ),
)
"""``position(a in b)`` comes as ``position(b, a)``, ``trim(x)`` as ``btrim(x)``, ``at time zone`` as ``timezone``."""


_STEPS = ("int2", "int4", "int8", "numeric", "float8")
_TIMES = ("date", "timestamp", "timestamptz")
_NO = 1000


def distance(given: SqlType, wanted: str) -> int:
    """How far an implicit cast goes. 1000 for never, 0 for none."""
    if given.array:
        return _NO
    if given.kind == wanted:
        return 0
    if given.kind == "unknown":
        return 5 if wanted == "text" else 6
    if wanted == "text" and given.group is Group.TEXT:
        return 1
    for steps in (_STEPS, _TIMES):
        if given.kind in steps and wanted in steps and steps.index(given.kind) < steps.index(wanted):
            # The last of each is the type that Postgres prefers.
            return 1 if wanted == steps[-1] else 1 + steps.index(wanted) - steps.index(given.kind)
    return _NO


def signature(name: str, given: Sequence[SqlType]) -> Signature | None:
    """The signature that Postgres would choose among those here. None where there is none."""
    found = _nearest((c for c in _BY_NAME.get(name, ()) if len(c.args) == len(given)), given)
    return None if found is None or found.function is _refused else found


def _nearest(candidates: Iterable[Signature], given: Sequence[SqlType]) -> Signature | None:
    """The one with the most arguments of the very type, and of these the one with the nearest casts."""
    best, found = (1, _NO), None
    for candidate in candidates:
        far = [distance(g, wanted) for g, wanted in zip(given, candidate.args, strict=True)]
        if max(far, default=0) < _NO and (rank := (-far.count(0), sum(far))) < best:
            best, found = rank, candidate
    return found


_BY_NAME: dict[str, list[Signature]] = {}
for _row in FUNCTIONS:
    _BY_NAME.setdefault(_row.name, []).append(_row)
KNOWN_FUNCTIONS = frozenset(_BY_NAME)

VOLATILE = frozenset(
    [
        "now",
        "current_timestamp",
        "current_date",
        "current_time",
        "localtime",
        "localtimestamp",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
        "timeofday",
        "random",
        "setseed",
        "gen_random_uuid",
        "uuidv4",
        "uuidv7",
        "nextval",
        "currval",
        "lastval",
        "current_user",
        "session_user",
        "user",
        "current_setting",
        "txid_current",
        "pg_backend_pid",
        "uuid_generate_v4",
    ]
)
"""Functions whose answer differs at each call, or for each user."""


@cache
def _int_op(kind: str, function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda a, b: dec.bounded(kind, function(a, b))


_INTEGER_OPS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": dec.int_divide,
    "%": dec.int_modulo,
}
_NUMERIC_OPS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": dec.add,
    "-": dec.subtract,
    "*": dec.multiply,
    "/": dec.divide,
    "%": dec.modulo,
}
_FLOAT_OPS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: dec.float_result(a + b, a, b),
    "-": lambda a, b: dec.float_result(a - b, a, b),
    "*": lambda a, b: dec.float_result(a * b, a, b, zero=a == 0 or b == 0),
    "/": dec.float_divide,
}
_TIME_OPS: tuple[Signature, ...] = tuple(
    _rows(
        ("+", "date int4", "date", cal.date_plus),
        ("+", "int4 date", "date", lambda a, b: cal.date_plus(b, a)),
        ("-", "date int4", "date", lambda a, b: cal.date_plus(a, -b)),
        ("-", "date date", "int4", cal.date_minus),
        ("+", "date interval", "timestamp", lambda a, b: cal.plus_interval(cal.timestamp_of_date(a), b)),
        ("-", "date interval", "timestamp", lambda a, b: cal.plus_interval(cal.timestamp_of_date(a), cal.negated(b))),
        ("+", "timestamp interval", "timestamp", cal.plus_interval),
        ("+", "interval timestamp", "timestamp", lambda a, b: cal.plus_interval(b, a)),
        ("-", "timestamp interval", "timestamp", lambda a, b: cal.plus_interval(a, cal.negated(b))),
        ("-", "timestamp timestamp", "interval", cal.between),
        ("+", "interval interval", "interval", cal.plus),
        ("-", "interval interval", "interval", lambda a, b: cal.plus(a, cal.negated(b))),
    )
) + tuple(
    _rows(
        ("+", "timestamptz interval", "timestamptz", cal.plus_interval),
        ("+", "interval timestamptz", "timestamptz", lambda a, b: cal.plus_interval(b, a)),
        ("-", "timestamptz interval", "timestamptz", lambda a, b: cal.plus_interval(a, cal.negated(b))),
        ("-", "timestamptz timestamptz", "interval", cal.between),
        zoned=True,
    )
)


def arithmetic(op: str, left: SqlType, right: SqlType) -> Signature | None:
    """``+ - * / %`` of two types. None where this engine has none."""
    groups = {left.group, right.group} - {Group.UNKNOWN}
    if groups <= {Group.INTEGER, Group.NUMERIC, Group.FLOAT} and groups:
        kinds = [t.kind for t in (left, right) if t.kind in _STEPS]
        kind = max(kinds, key=_STEPS.index)
        if kind == "numeric":
            return Signature(op, (kind, kind), kind, _NUMERIC_OPS[op])
        if kind == "float8":
            return Signature(op, (kind, kind), kind, _FLOAT_OPS[op]) if op in _FLOAT_OPS else None
        return Signature(op, (kind, kind), kind, _int_op(kind, _INTEGER_OPS[op]))
    return _nearest((candidate for candidate in _TIME_OPS if candidate.name == op), (left, right))
