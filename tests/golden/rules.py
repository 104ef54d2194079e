"""Where we differ from Debezium on purpose: each entry a rule of the wire manual, applied as narrowly as can be.

A rule that explains nothing any more fails the test, so this list never outlives its reasons.
"""

from __future__ import annotations

import json
from base64 import b64encode
from struct import pack

from tests.golden.compare import Difference, Rule
from tests.golden.lossless import ABSENT, Json, Number, parse, show

LEFT_OUT: dict[str, str] = {
    "sh_column_filters": "column exclusion and masks are not among our options",
    "sh_time_connect": "time.precision.mode=connect is not among our options",
    "sh_transaction_metadata": "a transaction topic is not among our options",
    "sh_partitions_leaf": "we publish partitions by their root",
    "sh_messages": "logical messages are decoded and not written",
}
"""Cases whose options we have not."""

REFUSED_TABLES: dict[str, str] = {
    "sh_nokey.nk_none": "D11: no key",
    "sh_nokey.nk_two": "D10: only unique indexes, none of them the identity",
    "sh_nokey.nk_nullable": "D10: a nullable unique index is no key",
    "sh_nokey.nk_insert_only": "D11: no key",
    "sh_replica_identity.ri_nothing": "REPLICA IDENTITY NOTHING: updates would fail",
}
"""Tables of the cases that ``check`` and ``init`` refuse."""


def _default_for_null(d: Difference) -> bool:
    old_row_by_key = d.record.op == "d" and d.path[:2] == ("value", "before")
    return d.in_row and d.got is None and d.expected is not ABSENT and not old_row_by_key and d.table in _DEFAULTS


_DEFAULTS = ("sh_defaults_generated.df", "sh_replica_identity.ri_default", "sh_replica_identity.ri_full")


def _generated(d: Difference) -> bool:
    return d.table == "sh_defaults_generated.df" and d.column == "g" and d.expected is ABSENT


def _unknown_type(d: Difference) -> bool:
    carried = d.got is None or _text(d.got)
    return d.in_row and d.expected is ABSENT and carried and not _generated(d) and not _identity_index(d)


def _text(value: Json) -> bool:
    if isinstance(value, tuple):
        return all(element is None or _text(element) for element in value)
    return isinstance(value, str)


def _invented_old_value(d: Difference) -> bool:
    invented = d.expected is not ABSENT and d.expected is not None and d.got is None
    return d.path[:2] == ("value", "before") and d.record.op == "d" and invented and not _identity_index(d)


def _name_type(d: Difference) -> bool:
    return d.column == "n" and d.table == "sh_text.txt" and d.expected in (None, "") and isinstance(d.got, str)


def _truncate(d: Difference) -> bool:
    if d.record.op != "t":
        return False
    return d.path == ("key",) if d.theirs else d.case == "sh_truncate_default"


def _special_word(d: Difference) -> bool:
    return d.in_row and d.got in ("NaN", "Infinity", "-Infinity") and d.expected in _DEBEZIUM_WORDS


_DEBEZIUM_WORDS = ("NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY", "NaN")


def _special_date(d: Difference) -> bool:
    word = d.encoding == "readable" and d.got in ("infinity", "-infinity")
    return d.in_row and d.case == "sh_datetime_special" and (d.record.snapshot or word)


def _last_moment(d: Difference) -> bool:
    return d.in_row and d.got == "24:00:00Z" and d.expected == "00:00:00Z"


def _array_element(d: Difference) -> bool:
    lost = isinstance(d.expected, tuple) or (d.expected is None and d.column == "ma")
    return d.in_row and lost and isinstance(d.got, tuple) and not _same_number(d) and not _unchanged_toast(d)


def _negative_scale(d: Difference) -> bool:
    return d.column == "neg" and d.case == "sh_numeric" and len(show(d.expected)) > 8 * len(show(d.got))


def _identity_index(d: Difference) -> bool:
    return d.table == "sh_replica_identity.ri_index"


def _leaf_row(d: Difference) -> bool:
    return d.path == () and d.ours is None and d.table in ("sh_partitions_root.p_eu", "sh_partitions_root.p_us")


def _unchanged_toast(d: Difference) -> bool:
    return d.table == "sh_toast.td" and d.in_row and d.expected in _PLACEHOLDERS


_PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS: tuple[Json, ...] = (
    _PLACEHOLDER,
    (_PLACEHOLDER,),
    b64encode(_PLACEHOLDER.encode()).decode(),
    tuple(Number(str(code)) for code in _PLACEHOLDER.encode()),
)


def _valid_header(d: Difference) -> bool:
    """Debezium does not escape control characters there, so what it writes is no JSON."""
    if d.path != ("headers",) or d.theirs is None or d.ours is None:
        return False
    names = [name for name, _ in d.theirs.headers]
    broken = [text for _, text in d.theirs.headers if "\n" in text]
    return bool(broken) and names == [n for n, _ in d.ours.headers] and all(parse(t) for _, t in d.ours.headers)


def _same_number(d: Difference) -> bool:
    if d.table == "sh_float_money.fl" and d.column == "r" and isinstance(d.got, Number):
        return isinstance(d.expected, Number) and _single(d.expected) == _single(d.got)
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
    if not (isinstance(d.expected, str) and isinstance(d.got, str) and d.expected.startswith("{")):
        return False
    return bool(json.loads(d.expected) == json.loads(d.got))


def _run_marker(d: Difference) -> bool:
    """The replay reads all cases in one run, so only one row is the run's first and one its last."""
    return d.path == ("value", "source", "snapshot") and d.expected in ("first", "last")


RULES: tuple[Rule, ...] = (
    Rule("D1", "a NULL is null, not the column's default", _default_for_null),
    Rule("D2", "a type Debezium does not know is text, not left out", _unknown_type),
    Rule("D3", "an old row by key holds the key and no invented value", _invented_old_value),
    Rule("D4", "special numerics are words", _special_word, ("readable",)),
    Rule("D5", "a name is its text", _name_type),
    Rule("D6", "a snapshot is encoded as the stream, and infinity in words", _special_date),
    Rule("D7", "every element of an array is exact", _array_element),
    Rule("D8", "a negative scale gives the right value", _negative_scale),
    Rule("D9", "the key is the identity index's, for every operation", _identity_index),
    Rule("D12", "generated columns stand in both, snapshot and stream", _generated),
    Rule("D13", "a row of a partition once, by its root", _leaf_row),
    Rule("D14", "old and new key in a header are valid JSON", _valid_header),
    Rule("D18", "an unchanged TOAST value is there", _unchanged_toast),
    Rule("D19", "24:00 is a time of its own", _last_moment, ("readable",)),
    Rule("D21", "the shortest float that round-trips, where Java 17 printed other digits", _same_number),
    Rule("D23", "a truncate is written, with a constant key", _truncate),
    Rule("D24", "markers of a whole run, of which a case is a part here", _run_marker),
)
