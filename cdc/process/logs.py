"""Logs: one line per event, its name first. ``key=value`` for people, JSON for machines. Nothing secret.

``log.info("slot_found", extra={"slot": "cdc_shop", "lsn": "0/16B3D48"})`` reads, on a terminal,
``12:00:01 info slot_found slot=cdc_shop lsn=0/16B3D48``. Never a line per row, and no row's values.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from cdc.process.untrusted_text import hide, without_urls

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}
_LEVELS = {0: logging.INFO, 1: logging.DEBUG}
OURS = ("cdc", "connectors", "snapshot", "sinks", "spark")


def configure(verbosity: int = 0, stream: TextIO | None = None, *, as_json: bool | None = None) -> None:
    """Send our logs to ``stream`` (stderr), at INFO, or DEBUG with ``verbosity``. Other libraries' at WARNING.

    JSON unless the stream is a terminal, or as ``as_json`` says.
    """
    stream = stream or sys.stderr
    as_json = not stream.isatty() if as_json is None else as_json
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING if verbosity < 2 else logging.DEBUG)
    for name in (*OURS, "headrace.sinks"):
        logging.getLogger(name).setLevel(_LEVELS.get(verbosity, logging.DEBUG))
    # It warns of every 404 and prints a traceback for every lost connection. Both come back to us as errors.
    logging.getLogger("opensearch").setLevel(logging.CRITICAL if verbosity < 2 else logging.DEBUG)


def cleaned(line: str, logger: str) -> str:
    """A line without secrets. Words of others in a line of ours were cleaned where they came in."""
    return without_urls(line) if logger.split(".", maxsplit=1)[0] in (*OURS, "headrace") else hide(line)


def fields(record: logging.LogRecord) -> Mapping[str, Any]:
    """The fields of ``extra``, in their order."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class LoggedCauses:
    """The cause that was logged last for each subject: what is tried again and again is logged once, and again when its
    cause changes. One thread.

    >>> logged = LoggedCauses()
    >>> [logged.is_new("public.t", cause) for cause in ("lock", "lock", "deadlock")]
    [True, False, True]
    >>> logged.over("public.t")
    >>> logged.is_new("public.t", "deadlock")
    True
    """

    def __init__(self) -> None:
        self._causes: dict[str, str] = {}

    def is_new(self, subject: str, cause: str) -> bool:
        """Whether to log this cause. It counts as logged from here on."""
        known = self._causes.get(subject)
        self._causes[subject] = cause
        return known != cause

    def over(self, subject: str) -> None:
        """The subject answers again: the next cause is new."""
        self._causes.pop(subject, None)


class LineFormatter(logging.Formatter):
    """``12:00:01 info event key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """One event as a line. A traceback follows on lines of its own."""
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        parts = [at, record.levelname.lower(), record.getMessage()]
        parts += [f"{name}={_shown(value)}" for name, value in fields(record).items()]
        if record.exc_info:
            parts.append("\n" + self.formatException(record.exc_info))
        return cleaned(" ".join(parts), record.name)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``ts``, ``level``, ``event``, ``logger``, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One event as a JSON object on one line."""
        document: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **fields(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        text = orjson.dumps(document, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        return cleaned(text, record.name)


def _shown(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text else text
