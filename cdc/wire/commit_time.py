"""When a record's change was committed, found without reading the record: readers ask it of many."""

from __future__ import annotations

import re

_SOURCE = b'"source":{'
_TIME = re.compile(rb'"ts_ms":(\d{1,16})[,}]')


def committed_ms(value: bytes | None) -> int | None:
    """The commit time that a record's envelope names, in ms since 1970. None where it has none: in a tombstone, and in
    a record that is no envelope.

    The member ``source`` stands behind ``before`` and ``after``, whose texts cannot hold an unescaped quote.

    >>> committed_ms(b'{"before":null,"after":{"id":1},"source":{"name":"shop","ts_ms":1700000000000},"op":"c"}')
    1700000000000
    >>> committed_ms(None), committed_ms(b'{"id":1}')
    (None, None)
    """
    if value is None or (at := value.rfind(_SOURCE)) < 0:
        return None
    found = _TIME.search(value, at)
    return int(found[1]) if found is not None else None
