"""Paths of a settings file that name what lies beside it: they count from its folder, wherever cdc is started. Pure.

A model says which of its settings are such paths: ``Annotated[str, PATH]``. So are files of secrets, and the files of
SQLite databases. Folders that a process makes for itself (checkpoints, states of views, what does not fit into memory)
are none of them: they count from the folder in which it is started, as a service has one that it may write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from os.path import normpath
from pathlib import Path
from typing import Any

from pydantic import BaseModel


class _Path:
    """The mark of a setting that is a path."""


PATH = _Path()
_SECRETS = ("password", "client_secrets", "storage_secrets", "catalog_secrets", "config_secrets")
_FILE = "file:"
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)(?![/:]|$)(.+)")

Models = Callable[[str, Mapping[str, Any]], type[BaseModel] | None]
"""The model of a section of ``[sinks]`` or ``[views]``: called with "sinks" or "views", and the section."""


def anchor(document: Mapping[str, Any], folder: Path, models: Models) -> None:
    """Make the relative paths of a document absolute, in place. ``folder``: the settings file's, from the root."""
    for name, section in document.items():
        if not isinstance(section, dict):
            continue
        _secrets(section, folder)
        for part in section.values() if name in ("sinks", "views") else ():
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
            section[name] = _secret(value, folder)
        elif isinstance(value, dict):
            value.update({one: _secret(said, folder) for one, said in value.items() if isinstance(said, str)})


def _secret(value: str, folder: Path) -> str:
    return f"{_FILE}{_absolute(value.removeprefix(_FILE), folder)}" if value.startswith(_FILE) else value


def _absolute(path: str, folder: Path) -> str:
    """
    >>> _absolute("../a/b", Path("/srv/shop")), _absolute("s3://bucket/a", Path("/srv"))
    ('/srv/a/b', 's3://bucket/a')
    """
    return path if not path or "://" in path else normpath(folder / path)
