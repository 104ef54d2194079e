"""Jars by name of their set, fetched once into the cache folder and checked against ``jars.lock``.

The lock names every jar of a set with its size and SHA-256. Nothing else gets onto a class path. The sets:
``spark-kafka`` (Spark's Kafka source), ``delta-spark`` and ``iceberg-spark`` (asked for only where Spark writes a
sink's Delta or Iceberg tables), ``iceberg-aws`` (beside it, where those are in S3), ``kafka`` (broker, tools and
Connect), ``opensearch``, ``debezium`` and ``debezium-mariadb`` (connectors, asked for only where Kafka Connect runs).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import orjson

from cdc.jvm import ivy
from cdc.jvm.ivy import Coordinate
from cdc.jvm.java import cache_folder, only_one
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, Exit

ALWAYS = ("spark-kafka", "kafka", "opensearch")
"""The sets that the local stack needs. Others are fetched when asked for."""
OF_SINKS = ("delta-spark", "iceberg-spark", "iceberg-aws")
"""Beside Spark's Kafka source, the sets that sinks may ask for (``sinks.contract.spark_parts``). An image has them
all."""
ATTEMPTS = 3
_STAMP = "verified.json"

Progress = Callable[[str, int, int], None]
"""Called with the set's name, bytes so far and bytes in all."""


class DownloadError(CdcError):
    """Jars could not be fetched, or are not the ones that the lock names."""

    exit = Exit.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar."""

    coordinate: Coordinate
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class JarSet:
    """One locked class path."""

    name: str
    jars: tuple[Jar, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all its jars together."""
        return sum(jar.size_bytes for jar in self.jars)

    @property
    def digest(self) -> str:
        """Changes with any jar, so that another version has another folder."""
        content = "\n".join(f"{jar.coordinate} {jar.sha256}" for jar in self.jars)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def locked() -> dict[str, JarSet]:
    """The sets of the committed lock."""
    return parse_lock((files("cdc.jvm") / "jars.lock").read_text(encoding="utf-8"))


def parse_lock(text: str) -> dict[str, JarSet]:
    """Read a lock: ``[set]`` lines, below each ``coordinate size sha256``. ``#`` starts a comment."""
    sets: dict[str, list[Jar]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            sets[name] = []
        elif line and not line.startswith("#"):
            coordinate, size, sha256 = line.split()
            sets[name].append(Jar(Coordinate.parse(coordinate), int(size), sha256))
    return {name: JarSet(name, tuple(jars)) for name, jars in sets.items()}


def resolve(
    sets: Iterable[JarSet],
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
    repository: Path | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Path]:
    """Folders of jars by set, fetched where missing, all sets at once. Each checked.

    ``repository`` is an ivysettings.xml: by default that of ``CDC_IVY_SETTINGS``, else Maven Central's.

    A download that breaks is tried again. DownloadError names what is still missing or wrong after that. A
    second process waits for the first one's result.
    """
    root = (cache or cache_folder()) / "jars"
    wanted = list(sets)
    places = {one.name: root / f"{one.name}-{one.digest}" for one in wanted}
    missing = [one for one in wanted if not _is_verified(one, places[one.name])]
    if missing:
        with only_one(root / "resolve.lock"):
            missing = [one for one in missing if not _is_verified(one, places[one.name])]
            pending = {one: places[one.name] for one in missing}
            _fetch_all(pending, repository or ivy.own_settings(), progress or _silent, clock)
    return places


def class_path(name: str, *, cache: Path | None = None) -> Path:
    """The folder of one set, fetched if missing."""
    return resolve([locked()[name]], cache=cache)[name]


def spark_jars(*more: str) -> tuple[Path, ...]:
    """Spark's Kafka source and what it needs, then ``more`` sets. See :func:`class_path`."""
    return tuple(jar for name in ("spark-kafka", *more) for jar in sorted(class_path(name).glob("*.jar")))


def _silent(_name: str, _done_bytes: int, _total_bytes: int) -> None:
    """Progress that nobody watches."""


def _fetch_all(missing: Mapping[JarSet, Path], repository: Path | None, progress: Progress, clock: Clock) -> None:
    pending = dict(missing)
    faults: dict[str, str] = {}
    for _attempt in range(ATTEMPTS):
        running = {one: ivy.start(_draft(place), _document(one), settings=repository) for one, place in pending.items()}
        try:
            while any(process.poll() is None for process in running.values()):
                for one, place in pending.items():
                    progress(one.name, min(_bytes_below(_draft(place)), one.size_bytes), one.size_bytes)
                clock.sleep(0.2)
        finally:
            for process in running.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
        for one, place in list(pending.items()):
            fault = _accept(one, place)
            if fault is None:
                progress(one.name, one.size_bytes, one.size_bytes)
                del pending[one]
            else:
                faults[one.name] = fault
        if not pending:
            return
    first = next(iter(pending))
    raise DownloadError(faults[first.name], hint=hint_for(_draft(pending[first]) / "ivy.log"))


def _document(jar_set: JarSet) -> str:
    return ivy.pinned(jar_set.name, [jar.coordinate for jar in jar_set.jars])


def _draft(place: Path) -> Path:
    return place.with_name(place.name + ".part")


def _accept(jar_set: JarSet, place: Path) -> str | None:
    """Check what arrived and put it in place, or say what is wrong, with the wrong files removed for the next try."""
    draft = _draft(place)
    arrived = ivy.retrieved(draft)
    absent = [jar.coordinate for jar in jar_set.jars if jar.coordinate not in arrived]
    if absent:
        # One that cannot be found keeps Ivy from fetching the rest.
        culprits = ivy.not_found(draft).intersection(absent) or {absent[0]}
        return f"{min(culprits)} could not be downloaded for the set {jar_set.name}"
    for jar in jar_set.jars:
        path = arrived[jar.coordinate]
        found = _sha256(path)
        if found != jar.sha256:
            _forget(draft, jar.coordinate, path)
            return f"{jar.coordinate} arrived with SHA-256 {found[:16]}…, the lock says {jar.sha256[:16]}…"
    shutil.rmtree(place, ignore_errors=True)
    made = draft / "set"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    for jar in jar_set.jars:
        placed = arrived[jar.coordinate].rename(made / jar.coordinate.file_name)
        # The layer of an image keeps a file's time in whole seconds. The mark has to fit there as well.
        whole_s = int(placed.stat().st_mtime)
        os.utime(placed, (whole_s, whole_s))
    (made / _STAMP).write_bytes(orjson.dumps(_marks(jar_set, made)))
    made.rename(place)
    shutil.rmtree(draft, ignore_errors=True)
    return None


def _forget(draft: Path, coordinate: Coordinate, path: Path) -> None:
    path.unlink()
    shutil.rmtree(draft / "cache" / coordinate.organisation / coordinate.module, ignore_errors=True)


def _is_verified(jar_set: JarSet, place: Path) -> bool:
    """Whether every jar is there and untouched since its checksum was taken."""
    try:
        return bool(orjson.loads((place / _STAMP).read_bytes()) == _marks(jar_set, place))
    except (OSError, orjson.JSONDecodeError):
        return False


def _marks(jar_set: JarSet, place: Path) -> dict[str, list[int]]:
    stats = {jar.coordinate.file_name: (place / jar.coordinate.file_name).stat() for jar in jar_set.jars}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bytes_below(draft: Path) -> int:
    total = 0
    for path in (draft / "cache").rglob("*.jar*"):
        try:
            total += path.stat().st_size
        except OSError:  # Ivy renames its .part files under us
            continue
    return total


def hint_for(log: Path) -> str:
    """A hint for a failed download, chosen by Ivy's own words."""
    talk = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if "PKIX" in talk:
        return (
            "a proxy with its own certificate authority seems to be in the way: name a Java trust store that "
            "knows it in CDC_JAVA_TRUST_STORE"
        )
    return f"is Maven Central reachable? a mirror can be named by CDC_IVY_SETTINGS=ivysettings.xml; details in {log}"
