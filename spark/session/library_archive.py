"""The libraries that a task imports as one archive, ``spark.archives``, made of those that are installed here.

For executors whose machines have a Python and nothing else. Nothing is fetched: what ``pip`` has checked against the
lock is packed as it lies. The archive has a ``bin/python`` that starts the machine's own Python, of this version, with
the libraries beside it. Our own packages are not in it: the application ships them at each start, in its version.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from cdc.process.errors import ConfigError
from sinks.contract.kinds import kinds_of_ours
from spark.session.executor_fitness import LIBRARIES

ARCHIVE = "libraries.tar.gz"
_OURS = "headrace"
_SHIPPED_BY_SPARK = {"pyspark", "py4j"}
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[([^]]*)\])?[^;]*(;.*)?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")
_START = """#!/bin/sh
# A Python of this machine, with the libraries beside this file.
here="$(cd "$(dirname "$0")/.." && pwd)"
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/lib"
# One of another version is started all the same: the application names it then.
command -v {python} >/dev/null && exec {python} "$@"
exec python3 "$@"
"""


def needed_by_tasks(more: Iterable[str] = ()) -> list[str]:
    """The packages that tasks import themselves, as pip knows them: with the clients of stores that executors write to,
    where those are installed. ``more``: other ones, as a store of your own."""
    extras = {kind.name for kind in kinds_of_ours() if kind.parallel}
    ours = _installed(_OURS)
    clients = [] if ours is None else [one for one in _required(ours, extras) if one not in _required(ours, ())]
    return [*LIBRARIES.values(), *(one for one in clients if _installed(_name(one)) is not None), *more]


def build_archive(folder: Path, packages: Iterable[str]) -> Path:
    """Write ``libraries.tar.gz``, with these packages and all that they require, into ``folder``. The same packages
    give the same bytes. ConfigError for one that is not installed here, or whose files nothing lists."""
    packed = with_requirements(packages)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / ARCHIVE
    draft = target.with_suffix(".part")
    start = _START.replace("{python}", f"python{sys.version_info.major}.{sys.version_info.minor}")
    with (
        draft.open("wb") as file,
        gzip.GzipFile("", "wb", 1, file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        _add(archive, "bin/python", start.encode(), 0o755)
        for name, path in sorted({entry for one in packed for entry in _files(one)}):
            _add(archive, f"lib/{name}", path.read_bytes(), 0o644)
    draft.replace(target)
    return target


def with_requirements(packages: Iterable[str]) -> list[Distribution]:
    """These packages and all that they require, but for what Spark brings to its executors. ConfigError for one that is
    not installed here. Of what they require some is for another system or Python, and is left out where it is not."""
    found: dict[str, Distribution] = {}
    wanted = list(packages)
    waiting, done = list(wanted), set[str]()
    while waiting:
        package = waiting.pop()
        if package in done or _name(package) in _SHIPPED_BY_SPARK:
            continue
        done.add(package)
        one = _installed(_name(package))
        if one is not None:
            found[_name(package)] = one
            waiting += _required(one, _extras(package))
        elif package in wanted:
            raise ConfigError(f"the package {package} is not installed here", hint=f"pip install {package}")
    return list(found.values())


def _required(one: Distribution, extras: Collection[str]) -> list[str]:
    """Its requirements, each as ``name`` or ``name[extra]``: those for everybody, and those of these extras."""
    found = []
    for line in one.requires or ():
        parts = _REQUIREMENT.match(line)
        extra = _EXTRA.search(line)
        if parts is not None and (extra is None or extra[1] in extras):
            found.append(f"{parts[1]}[{parts[2]}]" if parts[2] else parts[1])
    return found


def _name(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package.partition("[")[0]).lower()


def _extras(package: str) -> set[str]:
    return {one.strip() for one in package.partition("[")[2].rstrip("]").split(",") if one.strip()}


def _files(one: Distribution) -> Iterator[tuple[str, Path]]:
    """Name in the archive, and file, of all that is not a program or a compiled copy."""
    if one.files is None:
        raise ConfigError(
            f"nothing lists the files of the package {one.name}",
            hint="install it by pip in an environment of its own, and make the archive there",
        )
    for file in one.files:
        path = Path(str(one.locate_file(file)))
        if file.parts[0] != ".." and "__pycache__" not in file.parts and path.is_file():
            yield str(file), path


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def main(arguments: list[str]) -> int:
    """``python -m spark.session.library_archive FOLDER [PACKAGE]...``. Returns the exit code."""
    try:
        print(build_archive(Path(arguments[0] if arguments else "."), needed_by_tasks(arguments[1:])))
    except ConfigError as refusal:
        print(f"error: {refusal.message}\nhint: {refusal.hint}", file=sys.stderr)
        return int(refusal.exit)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
