"""A warehouse's folder on this machine, looked at for ``cdc check``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cdc.errors import ConfigError


def require_folder(folder: Path) -> None:
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
