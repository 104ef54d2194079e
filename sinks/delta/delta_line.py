"""The line of a Delta table's commits: whether what was opened is still the newest one in its folder."""

from __future__ import annotations

from pathlib import Path


class CommitLine:
    """The commits in the log of a table in a folder of this machine, which may be exchanged for another one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, tuple[int, ...]] = (-1, ())

    def stands(self, version: int) -> bool:
        """Whether a version is the newest one, and the commit that it was when this was asked of it first: at once
        where it was written or opened here."""
        try:
            about = self._file(version).stat()
        except OSError:
            return False
        now = version, (about.st_ino, about.st_mtime_ns, about.st_size)
        if self._seen[0] != version:
            self._seen = now
        return now == self._seen and not self._file(version + 1).exists()

    def _file(self, version: int) -> Path:
        return Path(self._path, "_delta_log", f"{version:020}.json")
