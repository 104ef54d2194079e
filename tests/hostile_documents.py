"""JSON that is legal in Postgres and hard on stores, one table for every test of documents.

The text is ``json``'s. ``jsonb`` takes those of :data:`BINARY`.
"""

from __future__ import annotations

from typing import Final


def _nested(depth: int, start: str, end: str, inner: str = "") -> str:
    return start * depth + inner + end * depth


DEEP: Final = {
    "arrays 99 deep": _nested(99, "[", "]"),
    "arrays 101 deep": _nested(101, "[", "]"),
    "arrays 300 deep": _nested(300, "[", "]", "1.10"),
    "objects 600 deep": _nested(600, '{"a": ', "}", "null"),
    "arrays 1,100 deep": _nested(1_100, "[", "]"),
    "objects and arrays 5,000 deep": _nested(2_500, '[{"b": ', ', "a": 1.50}]', '"]]}}"'),
}
WIDE: Final = {
    "30,000 names": "{" + ", ".join(f'"name{number}": {number}' for number in range(30_000)) + "}",
    "30,000 members": "[" + ", ".join(f'"{number}"' for number in range(30_000)) + "]",
    "a name of 40 kB": '{"' + "n" * 40_000 + '": 1}',
    "a term over 32,766 bytes": '{"term": "' + "ü" * 20_000 + '"}',
    "a text of 400 kB": '"' + "long text " * 40_000 + '"',
}
NUMBERS: Final = {
    "1e400": "1e400",
    "minus zero": "[-0, -0.0, 0.0]",
    "exponents": "[1E+2, 1e-7, 100, 1.0e2]",
    "zeros at the end": '{"price": 0.1000}',
    "an integer of 400 digits": "[" + "9" * 400 + "]",
    "more digits than a double": "[0.1000000000000000055511151231257827, 12345678901234567890]",
    "both mixed": '[1, "1", 1.0, true, null, {}, [], [1]]',
}
NAMES: Final = {
    "an empty name": '{"": {"": 1}}',
    "names of dots": '{".": 1, "..": 2, "a.b": 3, "a": {"b": 4}, ".a": 5, "a.": 6}',
    "names of our own": '{"_pos": "x", "_deleted": true, "_id": 1, "_source": {}, "_text": {"doc": "1"}}',
    "names of operators": '{"$oid": "1", "$date": {"$numberLong": "5"}, "%null": null, " ": 1}',
    "two types of one name": '[{"a": 1}, {"a": "x"}, {"a": {"b": 1}}, {"a": [[1]]}]',
    "unicode": '{"\u2028\ufeffé\U0001f600": "\u00e9"}',
    "the text of the mark": '"[[[[ {{{{ \\" ]"',
}
ONLY_JSON: Final = {
    "half a pair": '{"half": "\\ud800"}',
    "half a pair in 300 arrays": _nested(300, "[", "]", '"\\udc00"'),
    "NUL": '["a\\u0000b"]',
    "a name twice": '{"a": 1, "a": [2]}',
    "an exponent of 5,000 digits": "[1e" + "9" * 5_000 + "]",
    "white space": ' [ 1 ,\n\t{ "a" :\r\n2 } ] ',
}
BINARY: Final = {**DEEP, **WIDE, **NUMBERS, **NAMES}
EVERY: Final = {**BINARY, **ONLY_JSON}
