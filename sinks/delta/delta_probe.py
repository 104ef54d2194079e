"""Asks a folder or an object store who it is, for ``cdc check``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import deltalake
from deltalake.exceptions import DeltaError

from cdc.checks.facts import StoreFacts
from cdc.errors import ConfigError, SinkError
from cdc.foreign import quoted
from sinks.delta.delta_kind import RELATIVE
from sinks.delta.delta_table import Storage
from sinks.registry import SinkSpec


def probe_delta(spec: SinkSpec) -> StoreFacts:
    """A folder that can be written, or an object store that answers.

    Raises ConfigError for a folder that cannot be written, SinkError when the object store does not answer.
    """
    path = spec.text("path")
    if "://" not in path:
        _check_folder(Path(path))
        whole = Path(path).absolute()
        notes = {} if Path(path).is_absolute() else {RELATIVE: path}
        return StoreFacts(product="the folder", version=str(whole), notes=notes)
    try:
        deltalake.DeltaTable.is_deltatable(path, dict(Storage.of(spec).options))
    except (DeltaError, OSError, ValueError) as error:
        raise SinkError(
            f"the object store at {path} does not answer: {quoted(str(error))}",
            hint="check path, storage_options and storage_secrets",
        ) from None
    return StoreFacts(product="the object store", version=path)


def _check_folder(folder: Path) -> None:
    """ConfigError unless the folder, or the nearest one above it that exists, can be written."""
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not nearest.is_dir():
        raise ConfigError(f"the folder {folder} cannot be made: {nearest} is a file", hint="name a folder in path")
    try:
        # Asked by doing it: what a user may not write is not all that cannot be written.
        with tempfile.TemporaryDirectory(prefix=".cdc-", dir=nearest):
            pass
    except OSError as error:
        raise ConfigError(
            f"the folder {folder} cannot be written: {error.strerror}",
            hint=f"give this user the right to write {nearest}, or name another folder in path",
        ) from None
