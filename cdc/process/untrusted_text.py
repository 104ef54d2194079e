"""Words of others, on their way into a sentence, a log line or a report of ours.

A library's error may quote what it was given, a password included. Its words are cleaned where they come in, because
there it is known that they are not ours. Searching a finished sentence for a secret would spoil our own words as well:
with the password ``cdc``, the name of the command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
_LONGEST = 200
# Quotes may be escaped already, inside JSON.
_NAMED = re.compile(r"""(?i)((?:password|passwd|secret|token|jaas[.]config)[\\"']*\s*[=:]\s*[\\"']*)[^\s,;"'}&\\]+""")
_PASSWORD = re.compile(r"""(?:^|[\s?&])(?:ssl)?password\s*=\s*(?:'((?:[^'\\]|\\.)*)'|([^\s']+))""")
_WORD = re.compile(r"""[^\s"']+""")

_lock = Lock()
_secrets: dict[str, re.Pattern[str]] = {}
_KEPT = 3
_rotated: dict[str, list[str]] = {}


def remember(secrets: Iterable[str], origin: str = "") -> None:
    """Take note of secrets that this process has read: :func:`hide` finds them from now on.

    ``origin``: whose newest secret each of them is, if that may change. The three newest of an origin are hidden.
    """
    for secret in secrets:
        with _lock:
            if secret and secret not in _secrets:
                _secrets[secret] = _pattern(secret)
                if origin:
                    read = _rotated.setdefault(origin, [])
                    read.append(secret)
                    if len(read) > _KEPT:
                        del _secrets[read.pop(0)]


def hide(text: str) -> str:
    """``text`` without what is, or looks like, a password. For words that others wrote.

    >>> hide("connecting with password=hunter2 to redis://:hunter2@host")
    'connecting with password=*** to redis://***@host'
    """
    with _lock:
        # Longer ones first: one may be a part of another.
        known = [_secrets[secret] for secret in sorted(_secrets, key=len, reverse=True)]
    text = without_urls(_NAMED.sub(rf"\1{HIDDEN}", text))
    for pattern in known:
        text = pattern.sub(HIDDEN, text)
    return text


def without_urls(text: str) -> str:
    """``text`` without the user and password of URLs in it. This much may be done to our own sentences, too.

    >>> without_urls("cannot reach postgresql://cdc:p@ss/w@h/db")
    'cannot reach postgresql://***@h/db'
    """
    return _WORD.sub(lambda word: _url_without_password(word[0]), text)


def _url_without_password(word: str) -> str:
    """Up to the last @ of the word: a password that was not percent-encoded may have one, and slashes."""
    before, scheme, behind = word.partition("://")
    login, at, host = behind.rpartition("@")
    return f"{before}{scheme}{HIDDEN}@{host}" if at and ":" in login else word


def quoted(words: object) -> str:
    """Others' words as a sentence of ours may quote them: their first line, cut short and :func:`hide`-den.

    >>> quoted("connection refused\\n  at socket.c:7")
    'connection refused'
    """
    lines = str(words).strip().splitlines() or ["no reason given"]
    return hide(lines[0])[:_LONGEST].strip()


def _pattern(secret: str) -> re.Pattern[str]:
    """The secret as a whole word, in each spelling that a library may give it."""
    spellings = {secret, unquote(secret), quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1]}
    each = (
        (r"(?<!\w)" if word[0].isalnum() else "") + re.escape(word) + (r"(?!\w)" if word[-1].isalnum() else "")
        for word in sorted(spellings, key=len, reverse=True)
    )
    return re.compile("|".join(each))


def passwords_within(value: Any) -> Iterator[str]:
    """Passwords in URLs and libpq strings, against the manual's advice: anywhere in a document of settings that was not
    checked yet."""
    match value:
        case dict():
            for member in value.values():
                yield from passwords_within(member)
        case list() | tuple():
            for member in value:
                yield from passwords_within(member)
        case str():
            if "://" in value and "@" in value:
                # Up to the last @: one that is not percent-encoded belongs to the password.
                yield value.partition("://")[2].rpartition("@")[0].partition(":")[2]
            for found in _PASSWORD.finditer(value):
                yield found[1] or (found[2].partition("&")[0] if "://" in value else found[2])
