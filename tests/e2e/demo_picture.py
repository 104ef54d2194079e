"""The README's picture: the middle of what ``cdc demo`` leaves on a terminal, as it was, drawn by rich.

``python -m tests.e2e.demo_picture`` runs the demo, which takes two minutes, and writes ``demo.svg``.
"""

from __future__ import annotations

import html
import io
import os
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.screen import Shown, on_a_terminal, plain

PICTURE = Path(__file__).with_name("demo.svg")
COLUMNS, ROWS = 100, 50
BEGIN, END = "one change, from the table to the log", "documents in search show it"
_NUMBER = re.compile(r"[0-9A-F]+/[0-9A-F]+|\d[\d,.:]*")
_WRITTEN = re.compile(r'<text[^>]*clip-path="url\(#demo-line-(\d+)\)"[^>]*>([^<]*)</text>')
# As rich's own, less its fonts: those are fetched from elsewhere by whoever opens the picture.
_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="cdc demo in a terminal">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run_demo(folder: Path, *, orders: int, seconds: int) -> Shown:
    """The demo to its end, on a terminal as wide as the picture."""
    size = ("--orders", str(orders), "--seconds", str(seconds))
    argv = [sys.executable, "-m", "cdc", "demo", "--dir", str(folder), *size]
    return on_a_terminal(argv, columns=COLUMNS, rows=ROWS, environment=os.environ)


def middle(shown: Shown) -> list[str]:
    """The lines of the picture, with their colours. ValueError where they are not there."""
    words = [plain(line) for line in shown.lines]
    begin = next((n for n, line in enumerate(words) if line.endswith(BEGIN)), None)
    end = next((n for n, line in enumerate(words) if END in line), None)
    if begin is None or end is None:
        raise ValueError("the demo ended without what the picture shows")
    return shown.lines[begin : end + 1]


def drawn(lines: list[str]) -> str:
    """The picture of these lines. The same lines make the same file."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_svg(title="make demo", code_format=_FORMAT, unique_id="demo")


def written_in(picture: str) -> list[str]:
    """The lines of a picture, of which it has several texts each. Empty ones are left out."""
    lines: dict[str, list[str]] = {}
    for number, text in _WRITTEN.findall(picture):
        lines.setdefault(number, []).append(html.unescape(text).replace("\N{NO-BREAK SPACE}", " ").strip())
    return [" ".join(texts) for texts in lines.values() if any(texts)]


def shape(line: str) -> str:
    """A line without what differs from run to run: its numbers, and how they are lined up."""
    return " ".join(_NUMBER.sub("0", line).split())


def main() -> None:
    """Write the picture of a run."""
    shown = run_demo(Path(".cdc/picture"), orders=4000, seconds=20)
    if shown.code:
        sys.exit(shown.text)
    PICTURE.write_text(drawn(middle(shown)), encoding="utf-8")


if __name__ == "__main__":
    main()
