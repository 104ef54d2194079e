"""Where we differ from Debezium on purpose: each entry a rule of the wire manual, applied as narrowly as can be.

A rule compares the column's type and both values, arrays element by element. It explains a difference of that kind and
no other: a value of ours that is wrong must stay unexplained.
"""

from __future__ import annotations

import json
from base64 import b64encode

from cdc.wire.format import (
    AFTER,
    BEFORE,
    DELETE_OP,
    KEY_HEADERS,
    READ_OP,
    SOURCE,
    TRUNCATE_OP,
    UNAVAILABLE,
    UPDATE_OP,
)
from cdc.wire.types import DATED
from tests.golden.differences import RecordDifference, Rule
from tests.golden.lossless import ABSENT, Json, LosslessNumber, Object, parse, show
from tests.golden.value_rules import (
    NUMERIC_WORDS,
    base64_text,
    equal_members,
    equal_numbers,
    has_control,
    is_json_object,
    is_text,
    lost_elements,
    same_unescaped,
    single,
)

_MARKERS = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
_INEXACT = ("time", "timetz", "timestamp", "timestamptz", "date", "interval", "money", "name", "other", "xml", "varbit")
"""Elements that Debezium cuts, leaves out or gets wrong in an array."""


def _kind(d: RecordDifference) -> str:
    return d.column.kind if d.column is not None else ""


def _default_for_null(d: RecordDifference) -> bool:
    column = d.column
    if column is None or column.name not in d.facts.defaults or d.facts.identity_index or is_unchanged_toast(d):
        return False
    by_key = d.record.op == DELETE_OP and d.old_row
    return d.got is None and d.expected is not ABSENT and (column.nullable or not by_key)


def _generated(d: RecordDifference) -> bool:
    return d.expected is ABSENT and d.column is not None and d.column.generated


def _unknown_type(d: RecordDifference) -> bool:
    column = d.column
    if column is None or column.generated or not (column.kind == "other" or column.array):
        return False
    if d.expected is ABSENT:
        return d.got is None or is_text(d.got) or (column.array and isinstance(d.got, tuple))
    return column.kind == "other" and base64_text(d.expected, d.got)


def _invented_old_value(d: RecordDifference) -> bool:
    column = d.column
    invented = d.expected is not ABSENT and d.expected is not None and d.got is None
    by_key = d.record.op == DELETE_OP and d.old_row and not d.facts.identity_full
    if not (by_key and invented) or column is None or d.facts.identity_index:
        return False
    by_domain = column.type_oid >= _FIRST_USER_OID and d.expected in ("", False, LosslessNumber("0"))
    return (not column.nullable or by_domain) and column.key_position is None


_FIRST_USER_OID = 16384
"""A domain may be NOT NULL where the column is not."""


def _name_type(d: RecordDifference) -> bool:
    return _kind(d) == "name" and d.expected in (None, "") and isinstance(d.got, str)


def _truncate(d: RecordDifference) -> bool:
    if d.record.op != TRUNCATE_OP:
        return False
    return d.path == ("key",) if d.theirs else d.path == ()


def _special_word(d: RecordDifference) -> bool:
    known = _kind(d) == "numeric" and isinstance(d.expected, str) and d.expected in NUMERIC_WORDS
    return known and d.got == NUMERIC_WORDS[str(d.expected)]


def _special_date(d: RecordDifference) -> bool:
    """Infinity in words, and what a snapshot shifts: years before the Gregorian calendar or beyond 9999."""
    kind = _kind(d)
    if kind not in DATED:
        return False
    if d.encoding == "readable" and d.got in ("infinity", "-infinity"):
        return True
    return d.record.snapshot and _extreme(d, kind)


def _extreme(d: RecordDifference, kind: str) -> bool:
    if isinstance(d.got, str):
        year = d.got[: d.got.find("-", 1)]
        return d.got in ("infinity", "-infinity") or not year.isdigit() or int(year) <= _REFORM_YEAR
    if not isinstance(d.got, LosslessNumber):
        return False
    assert d.column is not None
    precision = d.column.precision
    day = 1 if kind == "date" else 86_400_000 if precision is not None and precision <= 3 else 86_400_000_000
    return not _REFORM_DAY < int(d.got.text) // day <= _LAST_DAY


_REFORM_YEAR = 1582
_REFORM_DAY = -141_062
"""1583-10-15: a year behind the reform, so that zones make no difference."""
_LAST_DAY = 2_932_896


def _last_moment(d: RecordDifference) -> bool:
    in_times = d.in_row and _kind(d) in ("time", "timetz")
    return in_times and d.got == "24:00:00Z" and d.expected == "00:00:00Z"


def _array_element(d: RecordDifference) -> bool:
    column = d.column
    if column is None or not column.array or not isinstance(d.got, tuple) or d.expected is ABSENT:
        return False
    if _same_number(d) or is_unchanged_toast(d) or base64_text(d.expected, d.got):
        return False
    return column.kind in _INEXACT or lost_elements(d.expected, d.got)


def _negative_scale(d: RecordDifference) -> bool:
    scale = d.column.scale if d.column is not None else None
    return scale is not None and scale < 0 and len(show(d.expected)) > 8 * len(show(d.got))


def _identity_index(d: RecordDifference) -> bool:
    """Key, old rows by key and records of another key. Rows after a change must be equal under any key."""
    if not d.facts.identity_index or not d.path:
        return d.facts.identity_index
    match d.path[0]:
        case "key":
            return _identity_key(d)
        case "headers":
            return d.path[-1] in KEY_HEADERS and _names_identity(d)
    return d.old_row and d.got is None and d.column is not None and d.column.key_position is None


def _identity_key(d: RecordDifference) -> bool:
    """Ours has the index's columns with the values that Debezium's own row has, and no other column."""
    column = d.column
    if column is None or column.key_position is None:
        return column is not None and d.got is ABSENT
    value = d.theirs.value if d.theirs is not None else None
    rows = [value.get(side) for side in (BEFORE, AFTER)] if isinstance(value, Object) else []
    known = [row.get(column.name) for row in rows if isinstance(row, Object) and column.name in row.names()]
    return not known or d.got in known


def _names_identity(d: RecordDifference) -> bool:
    """A key in a header is of the index's columns, or the header is one of a move that the other key does not make."""
    if d.got is ABSENT:
        return True
    names = {column.name for schema in d.facts.schemas for column in schema.key}
    found = parse(d.got) if is_json_object(d.got) and isinstance(d.got, str) else None
    return isinstance(found, Object) and set(found.names()) <= names


def _leaf_row(d: RecordDifference) -> bool:
    return d.path == () and d.ours is None and d.facts.leaf and d.record.snapshot


def _header(d: RecordDifference) -> bool:
    """Keys in headers: control characters that Debezium does not escape."""
    if d.path[:1] != ("headers",):
        return False
    if len(d.path) == 1:
        return _broken_header(d)
    return d.path[1] in KEY_HEADERS and same_unescaped(d.expected, d.got)


def _broken_header(d: RecordDifference) -> bool:
    if not (isinstance(d.expected, Object) and isinstance(d.got, Object)):
        return False
    broken = any(isinstance(value, str) and has_control(value) for _, value in d.expected.members)
    keys = [(d.expected.get(name), value) for name, value in d.got.members if name in KEY_HEADERS]
    return broken and all(one == two or same_unescaped(one, two) for one, two in keys)


_PLACEHOLDERS: tuple[Json, ...] = (
    UNAVAILABLE,
    (UNAVAILABLE,),
    b64encode(UNAVAILABLE.encode()).decode(),
    tuple(LosslessNumber(str(code)) for code in UNAVAILABLE.encode()),
    ("b68a35a7-17ad-35b3-af2a-ae46edb4545a",),
    json.dumps({UNAVAILABLE: UNAVAILABLE}, separators=(",", ":")),
)
_NOPLACEHOLDER = ("numeric", "bytea", "json", "jsonb", "hstore", "vector", "halfvec", "sparsevec")
"""Large types for which Debezium writes null."""
_LARGE = 100
"""Characters: what is stored out of line is longer, so a short value beside a NULL is a fault."""


def is_unchanged_toast(d: RecordDifference) -> bool:
    """Whether Debezium has a placeholder where ours has the value that the update left as it was."""
    column = d.column
    if column is None or d.record.op in (READ_OP, DELETE_OP):
        return False
    if d.expected in _PLACEHOLDERS:
        return True
    missing = d.expected is None and d.record.op == UPDATE_OP and len(show(d.got)) > _LARGE
    return missing and (column.array or column.kind in _NOPLACEHOLDER)


_FLOATS = frozenset(("float4", "float8", "point", "circle", "line", "vector", "halfvec", "sparsevec"))
"""Kinds whose values hold floats. All others have digits that mean what they are: 1 is not 1.0 there."""


def _same_number(d: RecordDifference) -> bool:
    if _kind(d) not in _FLOATS:
        return False
    if _kind(d) == "float4" and isinstance(d.expected, LosslessNumber) and isinstance(d.got, LosslessNumber):
        return single(d.expected) == single(d.got)
    return equal_numbers(d.expected, d.got)


def _same_members(d: RecordDifference) -> bool:
    if _kind(d) != "hstore":
        return False
    if isinstance(d.expected, tuple) and isinstance(d.got, tuple):
        return len(d.expected) == len(d.got) and all(map(equal_members, d.expected, d.got))
    return equal_members(d.expected, d.got)


def _run_marker(d: RecordDifference) -> bool:
    return d.path == ("value", SOURCE, "snapshot") and d.expected in _MARKERS and d.got in _MARKERS


RULES: tuple[Rule, ...] = (
    Rule("D1", "a NULL is null, not the column's default", _default_for_null),
    Rule("D2", "a type Debezium does not know is text, not left out or base64", _unknown_type),
    Rule("D3", "an old row by key holds the key and no invented value", _invented_old_value),
    Rule("D4", "special numerics are words", _special_word, ("readable",)),
    Rule("D5", "a name is its text", _name_type),
    Rule("D6", "a snapshot is encoded as the stream, and infinity in words", _special_date),
    Rule("D7", "every element of an array is exact", _array_element),
    Rule("D8", "a negative scale gives the right value", _negative_scale),
    Rule("D9", "the key is the identity index's, for every operation", _identity_index),
    Rule("D12", "generated columns stand in both, snapshot and stream", _generated),
    Rule("D13", "a row of a partition once, by its root", _leaf_row),
    Rule("D14", "keys in headers are valid JSON", _header),
    Rule("D18", "an unchanged TOAST value is there", is_unchanged_toast),
    Rule("D19", "24:00 is a time of its own", _last_moment, ("readable",)),
    Rule("D21", "the shortest float that round-trips, where Java prints other digits", _same_number),
    Rule("D22", "members of an hstore in Postgres's order", _same_members),
    Rule("D23", "a truncate is written, with a constant key", _truncate),
    Rule("D24", "markers of a snapshot's rows, which several workers read", _run_marker),
)
"""One of them, and only one, explains a difference on purpose."""
