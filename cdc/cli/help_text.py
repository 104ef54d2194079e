"""Help that reads as it was written.

Rich takes words in square brackets for markup and leaves them out, and keeps the line ends of docstrings, so that at
another width a paragraph breaks twice.
"""

from __future__ import annotations

import inspect
from typing import Any

from rich.markup import escape


def as_written(command: Any) -> Any:
    """The same Typer command. Its help, and that of its subcommands, shows every word, in whole paragraphs."""
    command.help = paragraphs(command.help or "")
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = escape(parameter.help)
    for below in getattr(command, "commands", {}).values():
        as_written(below)
    return command


def paragraphs(text: str) -> str:
    """Each paragraph in one line, in rich's markup.

    >>> paragraphs("Read [spark] conf,\\nand more.\\n\\nThe end.")
    'Read \\\\[spark] conf, and more.\\n\\nThe end.'
    """
    each = inspect.cleandoc(text).split("\n\n")
    return escape("\n\n".join(" ".join(one.split()) for one in each))
