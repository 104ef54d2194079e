"""What stands on a terminal after a program has written to it: the words of rich and of our own commands, no more."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.text import Text

_PART = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")
_RESET = "\x1b[0m"


def lines_of(written: str) -> list[str]:
    """The lines, each with its colours as escape sequences. What was drawn over is gone.

    Cursors go up, to a line's begin and to the next line, and lines are erased: all that a page drawn in place needs.
    ValueError at another movement, which would be shown wrongly.
    """
    lines, row, style = [""], 0, ""
    for words, kind, back, down, plain in _PART.findall(written):
        if kind == "m":
            style = "" if words in ("", "0") else f"\x1b[{words}m"
            lines[row] += f"\x1b[{words}m"
        elif kind == "A":
            row = max(0, row - int(words or 1))
        elif kind == "K":
            lines[row] = style
        elif down:
            row += 1
            if row == len(lines):
                lines.append("")
        elif plain:
            lines[row] += plain
        elif not back and words + kind not in ("?25l", "?25h"):
            raise ValueError(f"a movement that is not known: {words}{kind}")
    return [line + _RESET for line in lines]


@dataclass(frozen=True, slots=True)
class Shown:
    """A program's end, and what it left on the terminal. ``lines``: with colours."""

    code: int
    lines: list[str]

    @property
    def text(self) -> str:
        """Without colours."""
        return "\n".join(plain(line) for line in self.lines)


def plain(line: str) -> str:
    """A line of :func:`lines_of` without colours and without what is empty behind its words."""
    return Text.from_ansi(line).plain.rstrip()


def on_a_terminal(argv: Sequence[str], *, columns: int, rows: int, environment: Mapping[str, str]) -> Shown:
    """Run a program to its end on a terminal of this size."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    sized = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env={**sized, "TERM": "xterm-256color"}
    ) as process:
        os.close(theirs)
        written = b"".join(iter(partial(_read, ours), b"")).decode()
        code = process.wait()
    os.close(ours)
    return Shown(code, lines_of(written))


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""  # Linux says so that nobody is at the other end
