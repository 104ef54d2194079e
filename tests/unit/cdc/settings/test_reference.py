"""The example settings file and the manual's table, from the models."""

from __future__ import annotations

import re
import tomllib

import pytest

from cdc.settings.model import Settings
from cdc.settings.settings_reference import SECTIONS, SettingRow, duration_text, example, rows, size_text, table
from sinks.contract.kinds import parse_settings as parse
from sinks.contract.kinds import sink_sections

SINKS = sink_sections()


def uncommented() -> str:
    """The example with every setting switched on."""
    text = re.sub(r'^# (\[?[a-z_."]+\]?(?: =.*)?)$', r"\1", example(SINKS), flags=re.MULTILINE)
    return text.replace('password = "env:NAME"', "")


def test_the_example_is_accepted_as_it_is() -> None:
    settings = parse(tomllib.loads(example(SINKS)))
    assert list(settings.sinks) == ["cache", "search", "warehouse"]


def test_every_commented_setting_is_accepted_too() -> None:
    settings = parse(tomllib.loads(uncommented()))
    assert list(settings.sinks) == ["cache", "search", "warehouse", "reports", "lake"]
    assert settings.debezium is not None


def test_every_commented_default_is_the_default() -> None:
    plain, full = parse(tomllib.loads(example(SINKS))), parse(tomllib.loads(uncommented()))
    for section in ("log", "capture", "snapshot", "spark", "limits"):
        shown, default = getattr(full, section).model_dump(), getattr(plain, section).model_dump()
        assert {k: v for k, v in shown.items() if default[k] is not None} == {
            k: v for k, v in default.items() if v is not None
        }


def test_every_setting_is_explained_in_example_and_table() -> None:
    text, manual = example(SINKS), table(SINKS)
    for row in rows(SINKS):
        assert row.meaning, row.path
        assert re.search(rf"^(# )?{row.key} = .*# {re.escape(row.meaning)}$", text, re.MULTILINE), row.path
        assert f"| `{row.path}` |" in manual


def test_every_model_has_a_section() -> None:
    named = set(Settings.model_fields) - {row.key for row in rows(SINKS) if not row.section}
    assert named == {"sinks", *(section.path.partition(".")[0] for section in SECTIONS if section.path)}


@pytest.mark.parametrize("row", rows(SINKS), ids=lambda row: str(row.path))
def test_every_kind_is_a_word_for_people(row: SettingRow) -> None:
    assert "`" in row.kind or row.kind in (
        "text",
        "number",
        "size",
        "duration",
        "secret",
        "table",
        "list of text",
        "true or false",
    )


def test_durations_and_sizes_are_written_as_they_are_read() -> None:
    settings = parse(tomllib.loads(example(SINKS)))
    assert duration_text(settings.log.replay_window) == "7d"
    assert size_text(settings.snapshot.chunk_bytes) == "64MB"
