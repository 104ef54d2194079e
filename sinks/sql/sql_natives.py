"""Columns that keep the type they have in Postgres, in a warehouse that is Postgres. Pure, except for the settings of a
new connection.

Their rows come and go as text, which Postgres reads and prints: exact both ways. A value that the type does not have (a
row of an older shape) goes to ``_exact``, so each is checked before it is sent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from cdc.record.schema import Column
from cdc.record.topic_names import TableName
from sinks.contract.port import CannotCarry
from sinks.warehouse.warehouse_columns import WarehouseColumn, arrow_type, evolved, exact_text

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_MAC8 = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){7}")
_TIME = re.compile(r"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?|24:00:00(\.0{1,6})?)Z")
_NUMBER = re.compile(r"-?[0-9]{1,131072}(\.[0-9]{1,16383})?|NaN|-?Infinity")
_ADDRESS = re.compile(r"[0-9a-fA-F:.]+(/[0-9]{1,3})?")
_NO_JSONB = re.compile(r"(?<!\\)(\\\\)*\\u(0000|[dD][89a-fA-F])")
"""A NUL, and half a surrogate pair perhaps, which json has and jsonb has not."""

_JSON = ("json", "jsonb")
_HUGE = re.compile(r"[0-9.][eE]\+?[0-9]{5}")
"""Perhaps a number beyond the digits that jsonb has."""


def _inet(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None and _parsed(ipaddress.ip_interface, text)


def _cidr(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None and _parsed(ipaddress.ip_network, text)


def _fits_json(has: Callable[[str], bool], known: bool, text: str) -> bool:
    """Whether a text is JSON, of numbers that jsonb has. ``known``: it is JSON."""
    return has(text) and _HUGE.search(text) is None and (known or _parsed(orjson.loads, text))


def _parsed(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


_FITS: Mapping[str, Callable[[str], bool]] = {
    "json": lambda _text: True,
    "jsonb": lambda text: "\\u" not in text or _NO_JSONB.search(text) is None,
    "uuid": lambda text: _UUID.fullmatch(text) is not None,
    "inet": _inet,
    "cidr": _cidr,
    "macaddr": lambda text: _MAC.fullmatch(text) is not None,
    "macaddr8": lambda text: _MAC8.fullmatch(text) is not None,
    "time": lambda text: _TIME.fullmatch(text) is not None,
    "timetz": lambda text: _TIME.fullmatch(text) is not None,
    "numeric": lambda text: _NUMBER.fullmatch(text) is not None,
}
"""By type: whether it has a plain value's text."""
_ANY_DIGITS = "numeric"
_TEXTS = frozenset(_FITS) - {_ANY_DIGITS}


class Native(sa.types.UserDefinedType[Any]):
    """A type by its name in Postgres, whose values are text here."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """The name, as SQLAlchemy asks for it."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlColumn(WarehouseColumn):
    """A source column as a SQL database has it. ``native``: its type in Postgres, as ``uuid`` or ``uuid[]``, where that
    is kept. Empty for the type that ``type`` stands for."""

    native: str = ""


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """The columns of a table that is there: Arrow types, and the names of Postgres' own where one is kept."""

    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    natives: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.types


def native_of(column: Column) -> str:
    """The type that a column of the source keeps. Empty for one whose Arrow type stands for it."""
    kind = column.kind if column.kind in _TEXTS else ""
    if column.kind == _ANY_DIGITS:
        whole = arrow_type(column)
        element: Any = whole.value_type if pa.types.is_list(whole) else whole
        kind = _ANY_DIGITS if pa.types.is_string(element) else ""
    return f"{kind}[]" if kind and column.array else kind


def native_stored(kind: sa.types.TypeEngine[Any]) -> str:
    """The same of a stored column, by its type in the database."""
    if isinstance(kind, sa.ARRAY | postgresql.ARRAY):
        element = native_stored(kind.item_type)
        return f"{element}[]" if element else ""
    if isinstance(kind, postgresql.TIME | sa.Time):
        return "timetz" if kind.timezone else "time"
    if isinstance(kind, sa.Numeric):
        return "" if isinstance(kind, sa.Float) or kind.precision is not None else _ANY_DIGITS
    name = type(kind).__name__.lower()
    return name if name in _TEXTS else ""


def native_arrow(native: str) -> pa.DataType:
    """The Arrow type that carries a native type: text."""
    return pa.list_(pa.string()) if native.endswith("[]") else pa.string()


def native_sql(native: str) -> sa.types.TypeEngine[Any]:
    """A native type for SQLAlchemy."""
    element = Native(native.removesuffix("[]"))
    return postgresql.ARRAY(element) if native.endswith("[]") else element


def fits_native(native: str, kind: str) -> Callable[[Any], bool] | None:
    """Whether a type has a plain value. None where no value has to be checked. ``kind``: that of the source's column,
    in the row's own shape."""
    if not native:
        return None
    name = native.removesuffix("[]")
    has = _FITS[name]
    if name in _JSON and kind not in (name, "jsonb"):
        # Of an older shape, in which it need not be JSON.
        has = partial(_fits_json, has, kind in _JSON)
    if native.endswith("[]"):
        return lambda value: isinstance(value, list) and all(one is None or has(exact_text(one)) for one in value)
    return lambda value: has(exact_text(value))


def retyped_natives(
    table: TableName, stored: StoredColumns, wanted: Sequence[SqlColumn]
) -> dict[str, tuple[pa.DataType, str]]:
    """The columns that have to change, and what to. CannotCarry for one that cannot hold both its types' values.

    A column that is text stays text, under any type of the source. Two
    native types have text in common; json holds every jsonb.
    """
    found: dict[str, tuple[pa.DataType, str]] = {}
    for column in wanted:
        if column.name not in stored:
            continue
        before, have = stored.types[column.name], stored.natives.get(column.name, "")
        after = evolved(before, column.type)
        if after is None:
            raise CannotCarry.column(table, column.source.name, have or str(before), column.source.type)
        if have:
            holds = {have, have.replace("json", "jsonb")} if have in ("json", "json[]") else {have}
            if column.native not in holds or not after.equals(before):
                found[column.name] = (after, "")
        elif not after.equals(before):
            digits = column.native.startswith(_ANY_DIGITS) and _is_number(before)
            found[column.name] = (after, column.native if digits else "")
    return found


def _is_number(kind: Any) -> bool:
    element = kind.value_type if pa.types.is_list(kind) else kind
    return bool(pa.types.is_integer(element) or pa.types.is_decimal(element))


def as_text(quoted: str, have: str, *, is_list: bool) -> str:
    """The SQL of a native column's plain values, as text or, where ``is_list``, as texts."""
    if have.endswith("[]"):
        texts = f"{quoted}::text[]"
        return texts if is_list else f"case when {quoted} is not null then to_jsonb({texts}) #>> '{{}}' end"
    if have == "time":
        return f"{quoted}::text || 'Z'"
    if have == "timetz":
        return f"replace({quoted}::text, '+00', 'Z')"
    # A cast of an inet to text has a mask where the value has none.
    return f"case when {quoted} is not null then concat({quoted}) end"


def chosen(column: sa.Column[Any], native: str) -> sa.ColumnElement[Any]:
    """A column as a query asks for it: json as text, the one type that :func:`read_as_text` leaves."""
    if native == "json":
        return sa.cast(column, sa.Text).label(column.name)
    return sa.cast(column, postgresql.ARRAY(sa.Text)).label(column.name) if native == "json[]" else column


def plain_of(native: str) -> Callable[[Any], Any] | None:
    """How a value that was read becomes its plain one. None where it is that already."""
    convert = _PLAIN.get(native.removesuffix("[]"))
    if convert is None or not native.endswith("[]"):
        return convert
    return lambda values: [None if one is None else convert(one) for one in values]


def _utc(text: str) -> str:
    return f"{text.removesuffix('+00')}Z" if text.endswith("+00") else text


def _digits(value: Decimal) -> str:
    return format(value, "f")


_PLAIN: Mapping[str, Callable[[Any], Any]] = {"time": lambda text: f"{text}Z", "timetz": _utc, _ANY_DIGITS: _digits}


def read_as_text(engine: sa.Engine) -> None:
    """Have each connection of psycopg's hand the native types over as Postgres prints them."""
    from psycopg.types.string import TextLoader  # noqa: PLC0415 - the driver is there where it is the engine's

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        # json stays as it is: SQLAlchemy reads its catalog's answers by it.
        for name in _TEXTS - {"json"}:
            connection.adapters.register_loader(name, TextLoader)


def keeps_natives(engine: sa.Engine) -> bool:
    """Whether an engine's tables have native columns: those of Postgres, by the driver of :func:`read_as_text`."""
    return engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg"
