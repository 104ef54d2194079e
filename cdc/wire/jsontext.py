"""JSON strings exactly as Debezium's converter (Jackson) writes them.

Keys of records are compared and partitioned by their bytes, so the escapes count: the short ones for
``\\b \\t \\n \\f \\r " \\``, upper-case hex for other controls, and a pair of surrogates for characters beyond the
basic plane. Everything else stands as itself.
"""

from __future__ import annotations

import re

import orjson

PLAIN = rb'[^\x00-\x1f"\\\xf0-\xff]'
"""A byte (as a regular expression) that stands as itself inside a JSON string."""

_SPECIAL = re.compile(rb'[\x00-\x1f"\\\xf0-\xff]').search
_RARE = re.compile(rb"\\u00|[\xf0-\xf7]").search
_REWRITTEN = re.compile(rb"\\(?:u00[01][0-9a-f]|.)|[\xf0-\xf7]...", re.DOTALL)


def quote(text: bytes) -> bytes:
    """A JSON string. Raises ValueError when the text is not UTF-8.

    >>> quote('a "b" \\N{GRINNING FACE} \\x1f'.encode()).decode()
    '"a \\\\"b\\\\" \\\\uD83D\\\\uDE00 \\\\u001F"'
    """
    if _SPECIAL(text) is None:
        if not text.isascii():
            text.decode()
        return b'"%b"' % text
    quoted = orjson.dumps(text.decode())
    # Quotes, backslashes and line ends orjson writes as Jackson does.
    return quoted if _RARE(quoted) is None else _REWRITTEN.sub(_rewrite, quoted)


def name(text: str) -> bytes:
    """A member's name with its colon."""
    return quote(text.encode()) + b":"


def _rewrite(match: re.Match[bytes]) -> bytes:
    found = match[0]
    if found[0] != 0x5C:
        units = found.decode().encode("utf-16-be")
        return b"\\u%02X%02X\\u%02X%02X" % tuple(units)
    return b"\\u00" + found[4:].upper() if len(found) == 6 else found
