"""Our packages as one zip, for executors on machines that do not have them installed (``--py-files``)."""

from __future__ import annotations

import zipfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

PACKAGES = ("cdc", "connectors", "sinks", "spark")
"""What a task imports."""
_SUFFIXES = (".py", ".lua", ".sql", ".json", ".properties", ".typed")


def build_zip(folder: Path) -> Path:
    """Write ``headrace.zip`` into ``folder``; the same content gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "headrace.zip"
    draft = folder / "headrace.zip.part"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            _add(archive, files(package), package)
    draft.replace(target)
    return target


def _add(archive: zipfile.ZipFile, folder: Traversable, path: str) -> None:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        name = f"{path}/{entry.name}"
        if entry.is_dir() and entry.name != "__pycache__":
            _add(archive, entry, name)
        elif entry.is_file() and entry.name.endswith(_SUFFIXES):
            archive.writestr(zipfile.ZipInfo(name), entry.read_bytes())
