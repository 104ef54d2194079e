"""The line of a Delta table's commits: whether a version is the commit that was seen, or another one of its number."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from sinks.delta.delta_faults import Removed


class CommitLine:
    """The commits in the log of a table in a folder of this machine. An older copy to which others have written since
    may have the very version that was seen, and not the rows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read: tuple[tuple[int, ...], str] = ((), "")
        self._seen: tuple[int, str] = (-1, "")

    def commit(self, version: int) -> str:
        """The text that tells the commit of a version from every other one. Empty where the log has it no more."""
        try:
            about = self._file(version).stat()
            key = (version, about.st_ino, about.st_mtime_ns, about.st_size)
            if self._read[0] != key:
                self._read = key, sha256(self._file(version).read_bytes()).hexdigest()[:32]
        except OSError:
            return ""
        return self._read[1]

    def stands(self, version: int) -> bool:
        """Whether a version is the newest one, and the commit that it was when this was asked of it first."""
        now = self.commit(version)
        if self._seen[0] != version:
            self._seen = version, now
        return bool(now) and now == self._seen[1] and not self._file(version + 1).exists()

    def require(self) -> None:
        """Removed where the version that was seen last is another commit now."""
        version, seen = self._seen
        if seen and self.commit(version) not in ("", seen):
            raise Removed(f"another copy of the Delta table {self._path} was put in its place")

    def _file(self, version: int) -> Path:
        return Path(self._path, "_delta_log", f"{version:020}.json")
