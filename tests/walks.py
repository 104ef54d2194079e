"""The files that a value passes: seen while it passes them, and as ARCHITECTURE.md names them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


def named(heading: str) -> set[str]:
    """The files of ARCHITECTURE.md's numbered steps under a heading."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    [section] = re.findall(rf"^### {heading}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    steps = re.findall(r"^\d+\. (.*(?:\n   .*)*)", section, re.MULTILINE)
    return {file for step in steps for file in re.findall(r"\]\(([\w/]+\.py)\)", step)}
