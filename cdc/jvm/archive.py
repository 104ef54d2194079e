"""A class data archive for Spark's driver: the 12,000 classes that every start would else read and verify anew.

Measured with a first small query: 6.8 instead of 13.8 s of CPU. The archive, 150 MB in the cache folder, is made once
by a session that is started for it. The JVM leaves it aside by itself where jars or runtime are not those it was made
from. Format and options: "Class Data Sharing" in the JDK's guide to the virtual machine, and JEP 350.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from cdc.jvm.java import ARCHIVE, BASE_ARCHIVE, java_executable, java_home, only_one
from cdc.process.errors import CdcError

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
