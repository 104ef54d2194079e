"""How an error is shown: one sentence, one hint, an exit code. Never a traceback, never a secret."""

from __future__ import annotations

import os
import tempfile
import traceback

from rich.console import Console
from rich.text import Text

from cdc.errors import CdcError, Exit
from cdc.foreign import hide, without_urls


def report(failure: BaseException, console: Console) -> int:
    """Print ``failure`` and return its exit code.

    Our own errors are a sentence and a hint. :mod:`cdc.foreign` has cleaned the words of others in them. Anything else
    is a bug: the traceback goes to a file that only its owner may read, the sentence names it.
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
