"""Types of settings: durations, sizes, tables, secrets, URLs, paths, as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from cdc.record.topic_names import IN_QUOTES
from cdc.settings.client_options import TOKEN, require_allowed
from cdc.settings.mask_rules import MaskRule
from cdc.settings.secret_reference import REFERENCES, reveal

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = re.compile(r"(\d+)\s*(B|kB|MB|GB)?")
_UNIT_BYTES = {None: 1, "B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3}


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError('a duration is a number and a unit: "500ms", "30s", "10m", "12h" or "7d"')
        return timedelta(seconds=float(match[1]) * _UNIT_S[match[2]])
    if isinstance(value, int | float) and value < 0:
        raise ValueError('a duration is not below 0: "500ms", "30s", "10m", "12h" or "7d"')
    if isinstance(value, int | float):
        raise ValueError(f'a duration has a unit: "{value:g}s", "{value:g}m", "{value:g}h" or "{value:g}d"')
    return value


def _byte_count(value: Any) -> Any:
    if isinstance(value, str):
        match = _BYTES.fullmatch(value.strip())
        if match is None:
            raise ValueError('a size is a number and a unit: "900kB", "16MB" or "2GB"')
        return int(match[1]) * _UNIT_BYTES[match[2]]
    if isinstance(value, int) and value < 0:
        raise ValueError('a size is not below 0: "900kB", "16MB" or "2GB"')
    return value


def _some(value: Any) -> Any:
    if not value:
        raise ValueError("this has to be more than 0")
    return value


def _tables(value: Any) -> Any:
    """Each with its schema: without one the server's search_path would decide."""
    for name in value if isinstance(value, list | tuple) else ():
        if isinstance(name, str) and "." not in name.strip("."):
            raise ValueError(
                f'{name!r} lacks its schema (or database): write "schema.{name}", or "schema.*" for all of a schema'
            )
    return value


def any_tables(value: Any) -> Any:
    """Return a setting's list of tables as it is. ValueError where it is empty."""
    if isinstance(value, list | tuple) and not value:
        raise ValueError('no table is named: write tables = ["schema.table"], or "schema.*" for all of a schema')
    return value


def named_tables(value: Any) -> Any:
    """Return a setting's sections of tables, by the names that all else knows the tables by: without the double quotes
    in which ``[source] tables`` has some. ValueError where one is no single table's full name, or two are of one.

    >>> named_tables({'"my.schema"."a""b"': 1, "public.t": 2})
    {'my.schema.a"b': 1, 'public.t': 2}
    """
    if not isinstance(value, dict):
        return value
    _tables(list(value))
    found: dict[Any, Any] = {}
    for name, section in value.items():
        quoted = IN_QUOTES.fullmatch(name) if isinstance(name, str) else None
        if quoted is None and "*" in name:
            hint = 'masks are set table by table: write [tables."schema.table"]'
            raise ValueError(f"{name!r} is a pattern, and {hint}")
        table = ".".join(part.replace('""', '"') for part in quoted.groups()) if quoted is not None else name
        if table in found:
            raise ValueError(f"{table} has two sections: write one, with all of its columns")
        found[table] = section
    return found


Tables = Annotated[tuple[str, ...], BeforeValidator(_tables)]


def _mask(value: Any) -> Any:
    if isinstance(value, str):
        MaskRule.parse(value)
    return value


def _client_options(value: Any) -> Any:
    require_allowed(value)
    return value


def _client_secrets(value: Any) -> Any:
    # The names are judged: the values are not known here.
    require_allowed(dict.fromkeys(set(value) - {TOKEN}, ""))
    return value


def _copies(value: int) -> int:
    if value == 0 or value < -1:
        raise ValueError("this is 1 or more, or -1 for the brokers' own number")
    return value


ClientOptions = Annotated[dict[str, str | int | bool], AfterValidator(_client_options)]
Copies = Annotated[int, AfterValidator(_copies)]
MaskText = Annotated[str, BeforeValidator(_mask)]
Duration = Annotated[timedelta, BeforeValidator(_duration), PlainSerializer(lambda d: f"{d.total_seconds():g}s")]
ByteCount = Annotated[int, BeforeValidator(_byte_count)]
SomeTime = Annotated[Duration, AfterValidator(_some)]
SomeBytes = Annotated[ByteCount, AfterValidator(_some)]


class Secret:
    """A password or key by reference. Shows as ``***`` wherever it is printed.

    The variable, the file or the program is read when :meth:`reveal` is called, so a rotated secret is picked up.
    """

    __slots__ = ("_reference",)

    def __init__(self, reference: str) -> None:
        if not reference.startswith(REFERENCES):
            raise ValueError('a secret is written as "env:NAME", "file:PATH" or "command:PROGRAM", never as itself')
        self._reference = reference

    def reveal(self) -> str:
        """The secret itself. Raises as :func:`cdc.settings.secret_reference.reveal`."""
        return reveal(self._reference)

    @property
    def reference(self) -> str:
        """Where it comes from: safe to print."""
        return self._reference

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def _plain_url(value: Any) -> Any:
    """A URL with a password in it that is not percent-encoded is cut in other places than meant, and then shown."""
    if isinstance(value, str) and "://" in value and value.partition("?")[0].count("@") > 1:
        raise ValueError('this URL has more than one @: move the password out of it, to password = "env:NAME"')
    return value


Url = Annotated[str, BeforeValidator(_plain_url)]


def _secret(value: Any) -> Any:
    return Secret(value) if isinstance(value, str) else value


SecretRef = Annotated[Secret, BeforeValidator(_secret), PlainSerializer(lambda s: s.reference)]
ClientSecrets = Annotated[dict[str, SecretRef], AfterValidator(_client_secrets)]


class SettingsModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


# Paths of a settings file that name what lies beside it: they count from its folder, wherever cdc is started. Pure.
#
# A model says which of its settings are such paths: ``Annotated[str, PATH]``. So are files of secrets, and the files
# of SQLite databases. Folders that a process makes for itself (checkpoints, states of views, what does not fit into
# memory) are none of them: they count from the folder in which it is started, as a service has one that it may write.


class _Path:
    """The mark of a setting that is a path."""


PATH = _Path()
_SECRETS = ("password", "client_secrets", "storage_secrets", "catalog_secrets", "config_secrets")
_FILE = "file:"
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)(?![/:]|$)(.+)")

Models = Callable[[str, Mapping[str, Any]], type[BaseModel] | None]
"""The model of a section of ``[sinks]``, ``[views]`` or ``[streams]``: called with that name, and the section."""


def anchor(document: Mapping[str, Any], folder: Path, models: Models) -> None:
    """Make the relative paths of a document absolute, in place. ``folder``: the settings file's, from the root."""
    for name, section in document.items():
        if not isinstance(section, dict):
            continue
        _secrets(section, folder)
        for part in section.values() if name in ("sinks", "views", "streams") else ():
            if isinstance(part, dict):
                _secrets(part, folder)
                _paths(part, models(name, part), folder)


def _paths(section: dict[str, Any], model: type[BaseModel] | None, folder: Path) -> None:
    fields = model.model_fields if model is not None else {}
    for name, value in section.items():
        if not isinstance(value, str):
            continue
        lite = _SQLITE.fullmatch(value)
        if name in fields and PATH in fields[name].metadata:
            section[name] = _absolute(value, folder)
        elif name == "url" and lite is not None:
            section[name] = f"{lite[1]}{_absolute(lite[2], folder)}"


def _secrets(section: dict[str, Any], folder: Path) -> None:
    for name in _SECRETS:
        value = section.get(name)
        if isinstance(value, str):
            section[name] = _anchored_secret(value, folder)
        elif isinstance(value, dict):
            value.update({one: _anchored_secret(said, folder) for one, said in value.items() if isinstance(said, str)})


def _anchored_secret(value: str, folder: Path) -> str:
    return f"{_FILE}{_absolute(value.removeprefix(_FILE), folder)}" if value.startswith(_FILE) else value


def _absolute(path: str, folder: Path) -> str:
    """
    >>> _absolute("../a/b", Path("/srv/shop")), _absolute("s3://bucket/a", Path("/srv"))
    ('/srv/a/b', 's3://bucket/a')
    """
    return path if not path or "://" in path else normpath(folder / path)
