"""The demo's chapter of events: what payments told others, and what Spark SQL makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
from rich.text import Text

from cdc.cli.pipeline_processes import Child
from cdc.process.errors import CdcError
from cdc.process.sql_files import load

_SHOWN = 2
_SECTIONS = """\
[outbox]
[streams.payments]
sql = {sql}
key = ["begin"]
[streams.payments.events.paid]
topic = "shop.outbox.Order"
time = "at"
schema = "at timestamp, amount decimal(12,2)"
"""


def write_streams(folder: Path) -> str:
    """Write the stream's text below ``folder``. Returns the sections of the settings."""
    file = folder / "streams" / "payments.sql"
    file.parent.mkdir()
    file.write_text(stream_text() + "\n", encoding="utf-8")
    return _SECTIONS.format(sql=orjson.dumps(str(file)).decode())


def stream_text() -> str:
    """The text of the stream, to be shown."""
    return load("cdc.demo", "shop.sql")["payments"]


def last_lines(events: Child, expected: int | None = None) -> Iterator[Text]:
    """The last lines that a command, which prints one a record, has printed when it has ended, and how many there were.

    CdcError where it failed, or printed another number than ``expected``.
    """
    code = events.process.wait()
    if code:
        raise events.last_words(code)
    lines = events.printed().splitlines()
    if not lines or (expected is not None and len(lines) != expected):
        raise CdcError(f"cdc {events.name} told of {len(lines)} records, and there are {expected}")
    yield from map(Text, lines[-_SHOWN:])
    yield Text(f"{len(lines):,} in all", style="dim")
