"""A shell completes the names of the settings: quickly, and without a word where that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.programs import RunCdc

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
Completed = Callable[..., subprocess.CompletedProcess[str]]
_SLOW = ("pyspark", "confluent_kafka", "psycopg", "redis", "opensearchpy", "deltalake", "pandas", "pyarrow")


def asked(line: str) -> dict[str, str]:
    """The environment by which bash asks to complete the last word of a line."""
    return {"_CDC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}


@pytest.fixture
def completed(run_cdc: RunCdc) -> Completed:
    """Complete the last word of a line in a folder, by a process that has imported everything before."""

    def complete(folder: Path, line: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run_cdc(env=asked(line) | more, cwd=folder)

    return complete


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
def test_names_of_the_settings_are_completed(completed: Completed, folder: Path, line: str, names: list[str]) -> None:
    assert completed(folder, line).stdout.splitlines() == names


def test_a_completion_loads_no_client_library(folder: Path) -> None:
    """A shell waits for it at each key."""
    program = "import sys; sys.argv[0] = 'cdc'; from cdc.cli import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", program]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CDC_")}
    done = subprocess.run(
        command, cwd=folder, env=environment | asked("cdc verify "), capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    loaded = {row.rpartition("|")[2].strip().partition(".")[0] for row in done.stderr.splitlines()}
    assert "typer" in loaded
    assert loaded.isdisjoint(_SLOW)


def test_views_are_completed(completed: Completed, folder: Path) -> None:
    assert completed(folder, "cdc view run ").stdout.splitlines() == ["slim"]


@pytest.mark.parametrize(
    "line", ["cdc -c other.toml sink c", "cdc sink -c other.toml c", "cdc sink --config=other.toml c"]
)
def test_the_file_is_the_one_of_the_line(completed: Completed, folder: Path, line: str) -> None:
    (folder / "other.toml").write_text("[sinks.copy]", encoding="utf-8")
    assert completed(folder, line).stdout.splitlines() == ["copy"]


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"[sinks",
        b"sinks = 7",
        b"source = { tables = 3 }",
        b"\xff",
        b"sinks = [[1]]",
        b'sinks = "abc"',
        b'sinks = ["abc"]',
        b'source = { tables = "abc" }',
        b"[sinks.cache]\n#" + b"-" * 2**20,
    ],
)
def test_a_fault_is_silent(completed: Completed, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "cdc.toml").write_bytes(content)
    done = completed(tmp_path, "cdc verify ")
    assert (done.returncode, done.stdout.strip()) == (0, "")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "name", ["x$(touch pwned)", "x`touch pwned`", "x;y", 'x"y', "x'y", "x y", "-c", "x\\y", "x:y", "x\ny"]
)
def test_h270_a_name_that_a_shell_evaluates_is_not_offered(completed: Completed, tmp_path: Path, name: str) -> None:
    quoted = orjson.dumps(name).decode()
    text = f"[sinks.{quoted}]\n[sinks.good]\n[source]\ntables = [{quoted}]\n"
    (tmp_path / "cdc.toml").write_text(text, encoding="utf-8")
    assert completed(tmp_path, "cdc verify ").stdout.splitlines() == ["good"]


@pytest.mark.parametrize("name", ["orders_2", "public.orders", "a-b", "a+b@c%d", "größe"])
def test_usual_names_are_offered(completed: Completed, tmp_path: Path, name: str) -> None:
    (tmp_path / "cdc.toml").write_text(f'[sinks."{name}"]', encoding="utf-8")
    assert completed(tmp_path, "cdc sink ").stdout.splitlines() == [name]


@pytest.mark.parametrize("file", ["/dev/zero", "/dev/stdin", "pipe", "."])
def test_h270_a_file_without_an_end_does_not_hold_the_shell(completed: Completed, tmp_path: Path, file: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = completed(tmp_path, f"cdc -c {file} sink ")
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_the_file_may_be_in_the_home_folder(completed: Completed, tmp_path: Path) -> None:
    """The shell leaves ~ as it is typed."""
    (tmp_path / "own.toml").write_text("[sinks.copy]", encoding="utf-8")
    for line in ("cdc -c ~/own.toml sink ", "cdc --config=~/own.toml sink "):
        assert completed(tmp_path, line, HOME=str(tmp_path)).stdout.splitlines() == ["copy"]
