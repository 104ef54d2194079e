"""Jars by name of their set, fetched by Ivy once into the cache folder and checked against ``jars.lock``.

The lock names every jar of a set with its size and SHA-256. Nothing else gets onto a class path. The sets:
``spark-kafka`` (Spark's Kafka source), ``delta-spark`` and ``iceberg-spark`` (asked for only where Spark writes a
sink's Delta or Iceberg tables), ``iceberg-aws`` (beside it, where those are in S3), ``kafka`` (broker, tools and
Connect), ``opensearch``, ``debezium`` and ``debezium-mariadb`` (connectors, asked for only where Kafka Connect runs).
PySpark ships Ivy: no other download tool is needed, and we write none.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import quoteattr

import orjson

from cdc.jvm.java import cache_folder, download_options, java_executable, only_one
from cdc.process.clock import SYSTEM_CLOCK, Clock
from cdc.process.errors import CdcError, ConfigError, Exit

_MODULE = (
    '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
    '<info organisation="headrace" module={name}/><configurations><conf name="default"/></configurations>'
    "<dependencies>{body}</dependencies></ivy-module>\n"
)
# Ivy knows the address of "central" by itself. No POMs: the lock names every jar, and asking for each
# module's metadata takes ten times as long as the jars.
_SETTINGS = (
    '<ivysettings><settings defaultResolver="central"/><resolvers>'
    '<ibiblio name="central" m2compatible="true" {options}/></resolvers></ivysettings>\n'
)
_NOT_FOUND = re.compile(r"(?:::|\[(?:NOT FOUND|FAILED) *\]) ([\w.-]+)#([\w.-]+);([\w.-]+)(?:: not found|!)")
RETRIEVED = "[organisation]+[module]+[revision]+[artifact]+(-[classifier])+.[ext]"


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """One artifact by its Maven names."""

    organisation: str
    module: str
    revision: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read ``organisation:module:revision[:classifier]``."""
        return cls(*text.split(":"))

    def __str__(self) -> str:
        return ":".join(part for part in (self.organisation, self.module, self.revision, self.classifier) if part)

    @property
    def file_name(self) -> str:
        """The jar's usual name."""
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.module}-{self.revision}{tail}.jar"


def pinned(name: str, artifacts: Iterable[Coordinate]) -> str:
    """An ivy.xml that fetches exactly these artifacts."""
    body = []
    for (organisation, module, revision), group in groupby(
        sorted(artifacts), key=lambda one: (one.organisation, one.module, one.revision)
    ):
        body.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(revision)} "
            f'transitive="false" conf="default->default">{_artifacts(group)}</dependency>'
        )
    return _MODULE.format(name=quoteattr(name), body="".join(body))


def _artifacts(jars: Iterable[Coordinate]) -> str:
    return "".join(
        f'<artifact name={quoteattr(one.module)} type="jar" ext="jar" conf="default"'
        + (f" m:classifier={quoteattr(one.classifier)}/>" if one.classifier else "/>")
        for one in jars
    )


def closure(name: str, roots: Iterable[Coordinate], extra: str = "") -> str:
    """An ivy.xml that asks for ``roots`` with all they need at run time. ``extra``: excludes and overrides."""
    body = []
    for (organisation, module, revision), group in groupby(
        sorted(roots), key=lambda one: (one.organisation, one.module, one.revision)
    ):
        jars = list(group)
        named = _artifacts(jars) if any(one.classifier for one in jars) else ""
        body.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(revision)} "
            f'conf="default->master,runtime,compile">{named}</dependency>'
        )
    return _MODULE.format(name=quoteattr(name), body="".join(body) + extra)


def own_settings() -> Path | None:
    """The ivysettings.xml that ``CDC_IVY_SETTINGS`` names: a company's own mirror."""
    named = os.environ.get("CDC_IVY_SETTINGS")
    return Path(named).resolve() if named else None


def start(
    folder: Path, document: str, *, transitive: bool = False, settings: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start Ivy in ``folder``: artifacts land in ``cache/`` and then ``jars/``, its talk in ``ivy.log``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ivy.xml").write_text(document, encoding="utf-8")
    if settings is None:
        settings = folder / "ivysettings.xml"
        options = "" if transitive else 'usepoms="false" checksums=""'
        settings.write_text(_SETTINGS.format(options=options), encoding="utf-8")
    command = [
        *(str(java_executable()), *download_options(), "-jar", str(_ivy_jar())),
        *("-settings", str(settings), "-cache", str(folder / "cache"), "-warn", "-ivy", str(folder / "ivy.xml")),
        *("-types", "jar", "bundle", "-confs", "default", "-retrieve", str(folder / "jars" / RETRIEVED)),
    ]
    with (folder / "ivy.log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, env=_plain())


def _plain() -> Mapping[str, str]:
    """The environment without options that a user meant for other Javas."""
    return {k: v for k, v in os.environ.items() if k not in ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")}


def retrieved(folder: Path) -> dict[Coordinate, Path]:
    """The jars that Ivy has put into ``folder/jars``."""
    found = {}
    for path in (folder / "jars").glob("*.jar"):
        organisation, module, revision, _artifact, classifier, _ = path.name.split("+")
        found[Coordinate(organisation, module, revision, classifier.removeprefix("-"))] = path
    return found


def not_found(folder: Path) -> set[Coordinate]:
    """The artifacts that Ivy's output names as missing or broken."""
    talk = (folder / "ivy.log").read_text(encoding="utf-8", errors="replace")
    return {Coordinate(*match.groups()) for match in _NOT_FOUND.finditer(talk)}


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "PySpark is not installed, and its Ivy fetches the jars", hint="pip install 'headrace[stack]'"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-2*.jar"))
    if not jars:
        raise ConfigError("this PySpark has no Ivy among its jars", hint="install pyspark==4.1.1 with pip")
    return jars[-1]


ALWAYS = ("spark-kafka", "kafka", "opensearch")
"""The sets that the local stack needs. Others are fetched when asked for."""
OF_SINKS = ("delta-spark", "iceberg-spark", "iceberg-aws")
"""Beside Spark's Kafka source, the sets that sinks may ask for (``sinks.contract.stores``). An image has them
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
            _fetch_all(pending, repository or own_settings(), progress or _silent, clock)
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
        running = {one: start(_draft(place), _document(one), settings=repository) for one, place in pending.items()}
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
    raise DownloadError(faults[first.name], hint=hint_for(_draft(pending[first]) / "log"))


def _document(jar_set: JarSet) -> str:
    return pinned(jar_set.name, [jar.coordinate for jar in jar_set.jars])


def _draft(place: Path) -> Path:
    return place.with_name(place.name + ".part")


def _accept(jar_set: JarSet, place: Path) -> str | None:
    """Check what arrived and put it in place, or say what is wrong, with the wrong files removed for the next try."""
    draft = _draft(place)
    arrived = retrieved(draft)
    absent = [jar.coordinate for jar in jar_set.jars if jar.coordinate not in arrived]
    if absent:
        # One that cannot be found keeps Ivy from fetching the rest.
        culprits = not_found(draft).intersection(absent) or {absent[0]}
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
