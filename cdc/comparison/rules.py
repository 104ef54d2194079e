"""Where we differ from Debezium on purpose: each entry a rule of the wire manual, applied as narrowly as can be.

A rule looks at the column's type and at both values. What it explains is a difference of that kind and no
other: a value of ours that is wrong must stay unexplained.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from struct import pack

from cdc.comparison.differences import Difference, Rule
from cdc.comparison.lossless import ABSENT, Json, Number, Object, parse, show

_MARKERS = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
_OUR_SOURCE = ("epoch", "commit_lsn", "tx_seq")
_OUR_HEADERS = ("pos", "op", "ver")
_CONTEXT_HEADERS = "__debezium.context."
_KEY_HEADERS = ("__debezium.newkey", "__debezium.oldkey")
_INEXACT = ("time", "timetz", "timestamp", "timestamptz", "date", "interval", "money", "name", "other", "xml", "varbit")
"""Elements that Debezium cuts, leaves out or gets wrong in an array."""


def _kind(d: Difference) -> str:
    return d.column.kind if d.column is not None else ""


def _default_for_null(d: Difference) -> bool:
    column = d.column
    if column is None or column.name not in d.facts.defaults or d.facts.identity_index:
        return False
    by_key = d.record.op == "d" and d.old_row
    return d.got is None and d.expected is not ABSENT and (column.nullable or not by_key)


def _generated(d: Difference) -> bool:
    return d.expected is ABSENT and d.column is not None and d.column.generated


def _unknown_type(d: Difference) -> bool:
    column = d.column
    if column is None or column.generated or not (column.kind == "other" or column.array):
        return False
    if d.expected is ABSENT:
        return d.got is None or _text(d.got)
    return column.kind == "other" and _base64_text(d.expected, d.got)


def _text(value: Json) -> bool:
    if isinstance(value, tuple):
        return all(element is None or _text(element) for element in value)
    return isinstance(value, str)


def _base64_text(expected: Json, got: Json) -> bool:
    """``include.unknown.datatypes``: the same text in base64; an array of it as one text."""
    if not isinstance(expected, str):
        return False
    try:
        text = b64decode(expected, validate=True).decode()
    except (Base64Error, UnicodeDecodeError):
        return False
    return text == got or isinstance(got, tuple)


def _invented_old_value(d: Difference) -> bool:
    column = d.column
    invented = d.expected is not ABSENT and d.expected is not None and d.got is None
    by_key = d.record.op == "d" and d.old_row
    if not (by_key and invented) or column is None or d.facts.identity_index:
        return False
    by_domain = column.type_oid >= _FIRST_USER_OID and d.expected in ("", False, Number("0"))
    return (not column.nullable or by_domain) and column.key_position is None


_FIRST_USER_OID = 16384
"""A domain may be NOT NULL where the column is not."""


def _name_type(d: Difference) -> bool:
    return _kind(d) == "name" and d.expected in (None, "") and isinstance(d.got, str)


def _truncate(d: Difference) -> bool:
    if d.record.op != "t":
        return False
    return d.path == ("key",) if d.theirs else d.path == ()


def _special_word(d: Difference) -> bool:
    known = d.expected in ("NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY", "NaN")
    return d.in_row and known and d.got in ("NaN", "Infinity", "-Infinity")


def _special_date(d: Difference) -> bool:
    """Infinity in words; and what a snapshot shifts: years before the Gregorian calendar or beyond 9999."""
    kind = _kind(d)
    if kind not in ("date", "timestamp", "timestamptz"):
        return False
    if d.encoding == "readable" and d.got in ("infinity", "-infinity"):
        return True
    return d.record.snapshot and _extreme(d, kind)


def _extreme(d: Difference, kind: str) -> bool:
    if isinstance(d.got, str):
        year = d.got[: d.got.find("-", 1)]
        return d.got in ("infinity", "-infinity") or not year.isdigit() or int(year) <= _REFORM_YEAR
    if not isinstance(d.got, Number):
        return False
    assert d.column is not None
    precision = d.column.precision
    day = 1 if kind == "date" else 86_400_000 if precision is not None and precision <= 3 else 86_400_000_000
    return not _REFORM_DAY < int(d.got.text) // day <= _LAST_DAY


_REFORM_YEAR = 1582
_REFORM_DAY = -141_062
"""1583-10-15: a year behind the reform, so that zones do not matter."""
_LAST_DAY = 2_932_896


def _last_moment(d: Difference) -> bool:
    return d.in_row and d.got == "24:00:00Z" and d.expected == "00:00:00Z"


def _array_element(d: Difference) -> bool:
    column = d.column
    if column is None or not column.array or not isinstance(d.got, tuple) or d.expected is ABSENT:
        return False
    if _equal_numbers(d.expected, d.got) or _unchanged_toast(d) or _base64_text(d.expected, d.got):
        return False
    return column.kind in _INEXACT or _awkward(d.got)


def _awkward(elements: tuple[Json, ...]) -> bool:
    """NULL elements, several dimensions, or special values among them."""
    words = ("NaN", "Infinity", "-Infinity", "infinity", "-infinity")
    return any(e is None or isinstance(e, tuple) or e in words for e in elements)


def _negative_scale(d: Difference) -> bool:
    scale = d.column.scale if d.column is not None else None
    return scale is not None and scale < 0 and len(show(d.expected)) > 8 * len(show(d.got))


def _identity_index(d: Difference) -> bool:
    """Key, old rows and whole records of a delete; rows after a change must be equal whatever the key is."""
    if not d.facts.identity_index:
        return False
    return d.path == () or d.path[0] in ("key", "headers") or d.old_row or _another_change(d)


def _another_change(d: Difference) -> bool:
    """Records paired across an update of the one key that is none of the other's."""
    return d.theirs is not None and d.ours is not None and d.theirs.key != d.ours.key and d.path[:1] == ("value",)


def _leaf_row(d: Difference) -> bool:
    return d.path == () and d.ours is None and d.facts.leaf


def _header(d: Difference) -> bool:
    """Context headers of Debezium's, three of ours, and control characters that Debezium does not escape."""
    if d.path[:1] != ("headers",):
        return False
    if len(d.path) == 1:
        return _broken_header(d)
    name = d.path[1]
    if d.got is ABSENT:
        return name.startswith(_CONTEXT_HEADERS)
    if d.expected is ABSENT:
        return name in _OUR_HEADERS
    return name in _KEY_HEADERS and isinstance(d.expected, str) and _control(d.expected) and _is_json(d.got)


def _broken_header(d: Difference) -> bool:
    if not (isinstance(d.expected, Object) and isinstance(d.got, Object)):
        return False
    broken = any(isinstance(value, str) and _control(value) for _, value in d.expected.members)
    return broken and all(_is_json(value) for name, value in d.got.members if name in _KEY_HEADERS)


def _control(text: str) -> bool:
    return any(character < " " for character in text)


def _is_json(text: Json) -> bool:
    try:
        return isinstance(text, str) and isinstance(parse(text), Object)
    except ValueError:
        return False


def _own_field(d: Difference) -> bool:
    if d.path[:2] != ("value", "source") or len(d.path) != 3:
        return False
    return d.path[2] == "version" or (d.expected is ABSENT and d.path[2] in _OUR_SOURCE)


_PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS: tuple[Json, ...] = (
    _PLACEHOLDER,
    (_PLACEHOLDER,),
    b64encode(_PLACEHOLDER.encode()).decode(),
    tuple(Number(str(code)) for code in _PLACEHOLDER.encode()),
    ("b68a35a7-17ad-35b3-af2a-ae46edb4545a",),
    json.dumps({_PLACEHOLDER: _PLACEHOLDER}, separators=(",", ":")),
)
_NO_PLACEHOLDER = ("numeric", "bytea", "json", "jsonb", "hstore", "vector", "halfvec", "sparsevec")
"""Large types for which Debezium writes null."""
_LARGE = 100
"""Characters: what is stored out of line is longer, so a short value beside a NULL is a fault."""


def _unchanged_toast(d: Difference) -> bool:
    column = d.column
    if column is None or d.record.op in ("r", "d"):
        return False
    if d.expected in _PLACEHOLDERS:
        return True
    missing = d.expected is None and d.record.op == "u" and len(show(d.got)) > _LARGE
    return missing and (column.array or column.kind in _NO_PLACEHOLDER)


def _netted(d: Difference) -> bool:
    return d.facts.deferrable_key and d.path in ((), ("order",))


def _same_number(d: Difference) -> bool:
    if _kind(d) == "float4" and isinstance(d.expected, Number) and isinstance(d.got, Number):
        return _single(d.expected) == _single(d.got)
    return _equal_numbers(d.expected, d.got)


def _single(number: Number) -> bytes:
    return pack("f", float(number.text))


def _equal_numbers(one: Json, two: Json) -> bool:
    """Equal in bits too, so a minus before a zero counts; Java and Postgres print the same float otherwise."""
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(a == b or _equal_numbers(a, b) for a, b in zip(one, two, strict=True))
    if not (isinstance(one, Number) and isinstance(two, Number)):
        return False
    return repr(float(json.loads(one.text))) == repr(float(json.loads(two.text)))


def _same_members(d: Difference) -> bool:
    if _kind(d) != "hstore":
        return False
    if isinstance(d.expected, tuple) and isinstance(d.got, tuple):
        return len(d.expected) == len(d.got) and all(map(_equal_members, d.expected, d.got))
    return _equal_members(d.expected, d.got)


def _equal_members(one: Json, two: Json) -> bool:
    if not (isinstance(one, str) and isinstance(two, str) and one.startswith("{")):
        return one == two
    return bool(json.loads(one) == json.loads(two))


def _run_marker(d: Difference) -> bool:
    return d.path == ("value", "source", "snapshot") and d.expected in _MARKERS and d.got in _MARKERS


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
    Rule("D14", "headers: pos, op and ver, no context; keys in them are valid JSON", _header),
    Rule("D15", "fields of ours at the end of source, and our own version", _own_field),
    Rule("D18", "an unchanged TOAST value is there", _unchanged_toast),
    Rule("D19", "24:00 is a time of its own", _last_moment, ("readable",)),
    Rule("D20", "keys that move in one transaction are netted", _netted),
    Rule("D21", "the shortest float that round-trips, where Java prints other digits", _same_number),
    Rule("D22", "members of an hstore in Postgres's order", _same_members),
    Rule("D23", "a truncate is written, with a constant key", _truncate),
    Rule("D24", "markers of a snapshot's rows, which several workers read", _run_marker),
)
"""One of them, and only one, explains a difference on purpose."""
