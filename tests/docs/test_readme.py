"""The README's first screen, run: its commands in their order, and its line of output word by word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
FIRST_SCREEN = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Use it")[0]


def shown_commands() -> list[str]:
    """``cdc`` commands of the first screen, in order, without their comments."""
    return [
        match[1].strip() for match in re.finditer(r"^    \$ cdc ([^#\n]+?)(?:\s+#.*)?$", FIRST_SCREEN, re.MULTILINE)
    ]


def shown_event() -> str:
    found = re.search(r"^    (orders 42 .*)$", FIRST_SCREEN, re.MULTILINE)
    assert found is not None
    return found[1]


def shown_sql() -> str:
    found = re.search(r"^    postgres=# (.*)$", FIRST_SCREEN, re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_first_screen_is_about_thirty_lines() -> None:
    assert 20 <= len(FIRST_SCREEN.splitlines()) <= 45
    assert max(map(len, FIRST_SCREEN.splitlines())) <= 120


@pytest.mark.slow
def test_the_first_screen_works_as_it_stands(
    database: str, kafka: str, topic_prefix: str, redis_url: str, tmp_path: Path, run_cdc: RunCdc, spawn: Spawn
) -> None:
    commands = shown_commands()
    assert commands == ["events orders", "check", "init", "snapshot", "run", "sink", "status", "verify"]
    document: dict[str, Any] = {
        "name": topic_prefix,
        "source": {"dsn": database, "tables": ["public.orders"]},
        "log": {"bootstrap_servers": kafka},
        "capture": {"http_address": ""},
        "sinks": {"cache": {"kind": "redis", "url": redis_url}},
        "spark": {"checkpoint": str(tmp_path / "checkpoints")},
    }
    pipeline = Pipeline(tmp_path, run_cdc, document)
    pipeline.sql(
        "create table orders (id int primary key, status text)",
        "alter table orders replica identity full",
        "insert into orders values (42, 'open')",
    )
    running: dict[str, Spawned] = {}
    for command in ("check", "init", "snapshot"):
        pipeline.good(command)
    for command in ("run", "sink", "events orders"):
        running[command] = spawn("cdc", "--config", pipeline.config, *command.split())
    wait_until(lambda: "streaming" in running["run"].stderr, 60, describe=lambda: running["run"].stderr)
    wait_until(
        lambda: event_of(pipeline, running["events orders"]), 60, describe=lambda: running["events orders"].stderr
    )
    assert without_lsn(event_of(pipeline, running["events orders"])) == without_lsn(shown_event())
    pipeline.good("verify", "--timeout", "300")
    shown = pipeline.good("status")
    assert "consistent" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for program in ("run", "sink"):
        assert running[program].terminate(90) == 0, running[program].stderr


def event_of(pipeline: Pipeline, events: Spawned) -> str:
    """Run the README's statement until the tail, which may still be starting, has shown it; the line."""
    pipeline.sql("update orders set status = 'open' where id = 42", shown_sql())
    return next((line for line in events.stdout.splitlines() if '"paid"}  was' in line), "")


def without_lsn(line: str) -> str:
    return re.sub(r"[0-9A-F]+/[0-9A-F]+", "LSN", line)


def test_figures_in_words_are_those_of_the_table() -> None:
    readme = (ROOT / "tests" / "bench" / "README.md").read_text(encoding="utf-8")
    words = readme.partition("In words: ")[2].partition("\n\n")[0]
    measured = readme.partition("<!-- bench -->")[2].partition("<!-- /bench -->")[0]
    figures = re.findall(r"\d[\d,.]*\d(?= (?:changes/s|transactions/s|ms|s|rows/s))", words)
    assert len(figures) == 9
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d])", measured)] == []
    # "a fifth more", "an eighth".
    assert re.search(r"\| 1\.(?:1[89]|2[0-2])\d* of its rate", measured)
    assert re.search(r"\| 0\.1(?:1[5-9]|2\d|3[0-5]) of its rate", measured)


def test_the_manuals_console_block_prints_what_it_shows(tmp_path: Path, run_cdc: RunCdc) -> None:
    manual = (ROOT / "cdc" / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```console\n(.*?)```", manual, re.DOTALL)
    assert block is not None
    example, lint, expected = block[1].strip().splitlines()
    assert (example, lint) == ("$ cdc config example > cdc.toml", "$ cdc config lint")
    (tmp_path / "cdc.toml").write_text(run_cdc("config", "example").stdout, encoding="utf-8")
    done = run_cdc("config", "lint", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (0, "", expected)
