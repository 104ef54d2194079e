"""Running the Ivy that PySpark ships: no other download tool is needed, and we write none."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import quoteattr

from cdc.jvm.java import download_options, java_executable
from cdc.process.errors import ConfigError

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
