"""Our packages as one zip, for executors on machines that do not have them installed (``--py-files``)."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sinks.contract.sink_spec import SinkSpec

PACKAGES = ("cdc", "connectors", "pyspark_headrace", "sinks", "spark")
"""The packages that a task imports."""
_SUFFIXES = (".py", ".lua", ".sql", ".json", ".properties", ".typed")


def openers_of(specs: Iterable[SinkSpec]) -> tuple[str, ...]:
    """The packages, or lone modules, that bring the stores' openers and are not ours."""
    named = {spec.opener.partition(":")[0].partition(".")[0] for spec in specs}
    return tuple(sorted(named - set(PACKAGES)))


def build_zip(folder: Path, more: Sequence[str] = ()) -> Path:
    """Write ``headrace.zip`` into ``folder``. The same content gives the same bytes.

    ``more``: other packages, or lone modules, that a task imports.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "headrace.zip"
    draft = folder / "headrace.zip.part"
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (*PACKAGES, *more):
            module = import_module(package)
            if hasattr(module, "__path__"):
                _add(archive, files(package), package)
            else:
                archive.writestr(zipfile.ZipInfo(f"{package}.py"), Path(str(module.__file__)).read_bytes())
    draft.replace(target)
    return target


def _add(archive: zipfile.ZipFile, folder: Traversable, path: str) -> None:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        name = f"{path}/{entry.name}"
        if entry.is_dir() and entry.name != "__pycache__":
            _add(archive, entry, name)
        elif entry.is_file() and entry.name.endswith(_SUFFIXES):
            archive.writestr(zipfile.ZipInfo(name), entry.read_bytes())


if __name__ == "__main__":
    # python -m spark.session.package_zip FOLDER
    print(build_zip(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
