"""Log lines: event first, machine-readable off a terminal, nothing secret."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import orjson
import pytest

from cdc.process.logs import configure
from cdc.process.untrusted_text import hide


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


def test_json_off_a_terminal_and_key_value_on_one() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("cdc.test").info("slot_found", extra={"slot": "s", "lsn": "0/1"})
    document = orjson.loads(stream.getvalue())
    assert (document["event"], document["slot"], document["level"]) == ("slot_found", "s", "info")
    stream = io.StringIO()
    configure(stream=stream, as_json=False)
    logging.getLogger("cdc.test").info("waiting", extra={"why": "a snapshot runs"})
    assert stream.getvalue().endswith('info waiting why="a snapshot runs"\n')


def test_other_libraries_are_quiet_unless_asked_for() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("urllib3").info("noise")
    logging.getLogger("cdc.test").debug("detail")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    "text",
    [
        "host=h password=canary user=u",
        "sasl.password=canary",
        'sasl.jaas.config="canary"',
        '{"password": "canary"}',
        "redis://user:canary@host:6379",
        "could not log in: token=canary;",
    ],
)
def test_secrets_are_redacted_whoever_wrote_them(text: str) -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("library.test").warning("%s", text, extra={"again": text})
    assert "canary" not in stream.getvalue()
    assert "***" in hide(text)
