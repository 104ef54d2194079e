"""Where words of others reach a terminal: names of tables, keys, values, and what servers said.

A terminal takes some characters for commands: a table's name could clear it, set its title, or show other words than
those that are there. Each such character is shown as a sign that stands for it. JSON is not changed: it
is for programs, and escapes them by its own rules.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cdc.process.errors import CdcError, Exit
from cdc.process.untrusted_text import hide, without_urls

_PICTURES = 0x2400
"""Unicode has a picture of each control character of ASCII: ``␛`` for ESC."""
_DELETE = 0x7F
_UNSHOWN = "\N{REPLACEMENT CHARACTER}"
_OTHERS = (
    *range(0x80, 0xA0),  # the controls of Latin 1, which terminals obey as well
    0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A),  # turn the writing around
    0x2028, 0x2029,
    *range(0xD800, 0xE000),  # halves of characters, which no encoding has
)  # fmt: skip
_SHOWN = {
    **{code: chr(_PICTURES + code) for code in range(0x20) if chr(code) not in "\t\n"},
    _DELETE: "\N{SYMBOL FOR DELETE}",
    **dict.fromkeys(_OTHERS, _UNSHOWN),
}


def readable(text: str) -> str:
    """``text`` without a character that a terminal obeys, but for line ends and tabs. It is as long as before.

    >>> readable("public.x\\x1b[2J\\x9b2J")
    'public.x␛[2J\N{REPLACEMENT CHARACTER}2J'
    """
    return text.translate(_SHOWN)


def echo(text: str, *, err: bool = False) -> None:
    """Print a line that quotes others."""
    typer.echo(readable(text), err=err)


class TerminalConsole(Console):
    """A console that shows every text :func:`readable`, and takes none for markup: ``public.[b]`` is a name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of text are cleaned. Ones that move the cursor are the console's own, and stay."""
        if isinstance(renderable, Text):
            renderable = _cleaned(renderable)
        return super().render(renderable, options)

    def render_str(self, text: str, **options: Any) -> Text:
        """For the cells of tables, which are measured before they are drawn."""
        return super().render_str(readable(text), **options)


def _cleaned(text: Text) -> Text:
    words = readable(text.plain)
    if words == text.plain:
        return text
    # As long as before: styles stay where they are.
    shown = text.copy()
    shown.plain = words
    return shown


def report(failure: BaseException, console: Console) -> int:
    """Print ``failure`` and return its exit code.

    Our own errors are a sentence and a hint. :mod:`cdc.process.untrusted_text` has cleaned the words of others in
    them. Anything else is a bug: the traceback goes to a file that only its owner may read, the sentence names it.
    """
    if isinstance(failure, CdcError):
        for one in (failure, *failure.others):
            _print(console, "error", without_urls(one.message))
            if one.hint:
                _print(console, "hint", without_urls(one.hint))
        return failure.exit
    words = hide("".join(traceback.format_exception(failure)))
    try:
        where = f"the traceback is in {_keep(words)}"
    except OSError as problem:
        where = f"and its traceback could not be kept: {problem.strerror}"
    _print(console, "error", f"{type(failure).__name__} where none was expected; {where}")
    _print(console, "hint", "this is a bug in headrace: please report it with that file")
    return Exit.BUG


def _print(console: Console, label: str, words: str) -> None:
    style = "bold red" if label == "error" else "cyan"
    line = Text.assemble((f"{label}: ", style), " ".join(words.split()))
    console.print(line, soft_wrap=True, highlight=False)


def _keep(words: str) -> str:
    handle, path = tempfile.mkstemp(prefix="cdc-bug-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(words)
    return path
