"""A shell completes the names of the settings: quickly, and without a word where that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = """
name = "shop"
[source]
tables = ["public.orders", "public.customers", "sales.*"]
[sinks.cache]
kind = "redis"
[sinks.search]
kind = "opensearch"
[views.slim]
sql = "slim.sql"
"""
_SLOW = ("pyspark", "confluent_kafka", "psycopg", "redis", "opensearchpy", "deltalake", "pandas", "pyarrow")


def completed(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Complete the last word of a line as bash has it done. It prints its imports on stderr."""
    words = line.split(" ")
    asked = {"_CDC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = "import sys; sys.argv[0] = 'cdc'; from cdc.cli import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", program]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CDC_")} | asked
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cdc.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("cdc sink ", ["cache", "search"]),
        ("cdc sink cache ", ["search"]),
        ("cdc sink se", ["search"]),
        ("cdc rebuild c", ["cache"]),
        ("cdc events public.", ["public.customers", "public.orders"]),
        ("cdc snapshot public.o", ["public.orders"]),
        ("cdc verify ", ["cache", "search", "public.customers", "public.orders", "view.slim"]),
    ],
)
def test_names_of_the_settings_are_completed(folder: Path, line: str, names: list[str]) -> None:
    done = completed(folder, line)
    assert done.stdout.splitlines() == names
    loaded = {row.rpartition("|")[2].strip().partition(".")[0] for row in done.stderr.splitlines()}
    assert "typer" in loaded
    assert loaded.isdisjoint(_SLOW), "a shell waits for this at each key"


def test_views_are_completed(folder: Path) -> None:
    assert completed(folder, "cdc view run ").stdout.splitlines() == ["slim"]


@pytest.mark.parametrize(
    "line", ["cdc -c other.toml sink c", "cdc sink -c other.toml c", "cdc sink --config=other.toml c"]
)
def test_the_file_is_the_one_of_the_line(folder: Path, line: str) -> None:
    (folder / "other.toml").write_text("[sinks.copy]", encoding="utf-8")
    assert completed(folder, line).stdout.splitlines() == ["copy"]


@pytest.mark.parametrize(
    "content", [None, b"[sinks", b"sinks = 7", b"source = { tables = 3 }", b"\xff", b"sinks = [[1]]"]
)
def test_a_fault_is_silent(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "cdc.toml").write_bytes(content)
    done = completed(tmp_path, "cdc verify ")
    assert (done.returncode, done.stdout.strip()) == (0, "")
    assert [row for row in done.stderr.splitlines() if not row.startswith("import time:")] == []
