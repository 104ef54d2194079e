"""The files that a value passes: seen while it passes them, and as ARCHITECTURE.md names them."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).parents[1]
ROOMS = ("cdc", "connectors", "snapshot", "sinks", "spark")
_ARROW = (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray)
_DEEP = 3


class Walk:
    """``files``: those of whose functions one was given the value, or gave it back. ``compiled``: names of code that is
    made at run, and of the file that makes it."""

    def __init__(self, value: str, compiled: dict[str, str]) -> None:
        self.files: set[str] = set()
        self._value = value
        self._compiled = compiled
        self._names: dict[CodeType, str | None] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See the calls of threads that begin from now on. An own thread has to begin within."""
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def watched_here(self) -> Iterator[None]:
        """See the calls of this thread."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, returned: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code not in self._names:
            self._names[code] = self._named(code.co_filename)
        name = self._names[code]
        if name is None or name in self.files:
            return
        values = [returned] if event == "return" else frame.f_locals.values()
        if any(self._has(value) for value in values):
            self.files.add(name)

    def _named(self, file: str) -> str | None:
        if file in self._compiled:
            return self._compiled[file]
        path = Path(file)
        if not path.is_relative_to(ROOT):
            return None
        inner = path.relative_to(ROOT)
        return inner.as_posix() if inner.parts[0] in ROOMS else None

    def _has(self, value: object, deep: int = 0) -> bool:
        if isinstance(value, _ARROW):
            return self._value in str(value.to_pylist())
        if isinstance(value, str):
            return self._value in value
        if isinstance(value, bytes | bytearray | memoryview):
            return self._value.encode() in bytes(value)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
        return deep < _DEEP and any(self._has(one, deep + 1) for one in inner)


class Calls:
    """``files``: those of a room whose functions were called."""

    def __init__(self, room: str) -> None:
        self.files: set[str] = set()
        self._room = ROOT / room

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See the calls of this thread, and of threads that begin within."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code, path = frame.f_code, Path(frame.f_code.co_filename)
        # The bodies of modules and classes are called as they are imported.
        if event == "call" and code.co_flags & CO_OPTIMIZED and path.is_relative_to(self._room):
            self.files.add(path.relative_to(ROOT).as_posix())


def named(heading: str) -> set[str]:
    """The files of ARCHITECTURE.md's numbered steps under a heading."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    [section] = re.findall(rf"^### {heading}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^\d+\. (.*(?:\n   .*)*)", section, re.MULTILINE)
    return {file for step in steps for file in re.findall(r"\]\(([\w/]+\.py)\)", step)}
