"""Which options of a connector are secret: named by a reference, masked where one stands as itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import HIDDEN

_REFERENCE = re.compile(r"\$\{[A-Za-z0-9_.-]+:(?:[^}$]|\$(?!\{))*\}")
_WORDS = r"pass(?:word|phrase|wd)|pwd|secret|token|credential|private[._-]?key|api[._-]?key|access[._-]?key"
_SECRET = re.compile(rf"{_WORDS}|jaas|keystore[._]key|user[._]info", re.IGNORECASE)
_ABOUT_A_SECRET = re.compile(
    r"[.](?:source|provider|class|type|location|path|file|enabled?|mechanism|algorithm|endpoint[.]url|ms|seconds)$"
)
"""Options that say where a secret is, or how it is used."""
_LOGIN = re.compile(r"://[^/?#\s:]*:[^@\s]")
_ORACLES_LOGIN = re.compile(r"jdbc:oracle:\w+:[^/@\s]+/[^@\s]+@", re.IGNORECASE)
_JAAS = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\s")
_NAMED = re.compile(rf"""(?:{_WORDS})\s*=\s*["']?[^\s"';&,]""", re.IGNORECASE)


def is_reference(value: str) -> bool:
    """Whether the value is one reference for a config provider of the worker, as ``${file:/path:key}``."""
    return _REFERENCE.fullmatch(value) is not None


def exposes(option: str, value: str) -> bool:
    """Whether a secret stands in the value as itself, by the option's name or as the login of a URL.

    >>> exposes("database.password", "${env:PASSWORD}"), exposes("database.password", "x${env:PASSWORD}")
    (False, True)
    >>> exposes("mongodb.connection.string", "mongodb://cdc:hunter2@db"), exposes("database.url", "jdbc:x://h?password=y")
    (True, True)
    """
    rest = _REFERENCE.sub("", value)
    if _has_login(rest) or (("://" in rest or rest.startswith("jdbc:")) and _NAMED.search(rest)):
        return True
    if _SECRET.search(option) is None or _ABOUT_A_SECRET.search(option) is not None:
        return False
    if "jaas" in option.lower():
        return bool(rest.strip()) and (_JAAS.match(rest) is None or _NAMED.search(rest) is not None)
    if "user" in option.lower() and rest != value:
        rest = rest.partition(":")[2]  # the user's name may be read
    return bool(rest.strip())


def masked(option: str, value: str | None) -> str | None:
    """The value as it may be printed: ``***`` where a secret stands in it."""
    return HIDDEN if value is not None and exposes(option, value) else value


def refuse_plain_secrets(config: Mapping[str, str]) -> None:
    """ConfigError for a secret that stands as itself."""
    for option, value in config.items():
        if exposes(option, value):
            raise ConfigError(
                f"the connector option {option} must not hold the secret itself",
                hint='name where Kafka Connect finds it: "${file:/path/to.properties:key}" or "${env:NAME}"',
            )


def _has_login(value: str) -> bool:
    """Whether a URL in it has a password before its host, as ``scheme://user:password@host``."""
    for word in value.split():
        begun = _LOGIN.search(word)
        if begun is not None and "@" in word[begun.end() :]:
            return True
    return _ORACLES_LOGIN.match(value) is not None
