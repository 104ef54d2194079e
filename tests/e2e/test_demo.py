"""The demo as a test: the whole story with a small shop, and Ctrl-C in the middle of it."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.demo_picture import PICTURE, middle, run_demo, shape, written_in
from tests.programs import Spawn
from tests.screen import plain
from tests.waiting import wait_until


def processes_of(folder: Path) -> list[str]:
    """Command lines of what still runs for a demo in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if str(folder).encode() in words + (process / "environ").read_bytes():
                found.append(words.replace(b"\0", b" ").decode(errors="replace")[:200])
    return found


def folder_and_environment(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The demo's folder, also in the environment of everything it starts, so that it can be found."""
    folder = tmp_path / "demo"
    return folder, {"CDC_TEST_DEMO": str(folder), "COLUMNS": "120"}


@pytest.mark.slow
def test_the_demo_tells_its_story_and_leaves_nothing(spawn: Spawn, tmp_path: Path) -> None:
    folder, environment = folder_and_environment(tmp_path)
    demo = spawn("cdc", "demo", "--dir", folder, "--orders", "400", "--seconds", "3", env=environment)
    assert demo.wait(240) == 0, demo.stderr
    rows = re.findall(r"^public\.(\w+) +(cache|search|warehouse) +([\d,]+) +([\d,]+) +0 +0 +0$", demo.stdout, re.M)
    assert {(table, store) for table, store, *_ in rows} == {
        (table, store)
        for table in ("customers", "order_lines", "orders", "payments", "products", "stock")
        for store in ("cache", "search", "warehouse")
    }
    assert all(source == held for _, _, source, held in rows)
    assert "all equal" in demo.stdout
    views = re.findall(r"^view\.(\w+) +(search|warehouse) +([\d,]+) +([\d,]+) +0 +0 +0$", demo.stdout, re.M)
    assert [view[:2] for view in views] == [
        ("order_search", "search"),
        ("order_search", "search"),
        ("sales_by_product", "warehouse"),
    ]
    assert all(source == held for *_, source, held in views)
    renamed = re.search(r"^(\d+) of (\d+) documents in search show it \d+\.\d s after the commit$", demo.stderr, re.M)
    assert renamed is not None, demo.stderr
    assert renamed[1] == renamed[2] != "0"
    paid = r'^orders 42  update  [0-9A-F]+/[0-9A-F]+  \{"status": "paid"\}  was \{"status": "open"\}$'
    assert len(re.findall(paid, demo.stderr, re.M)) == 1
    orders = re.findall(r"^(cache|search|warehouse) +order \d+  (\{.*\})$", demo.stderr, re.M)
    assert [store for store, _ in orders] == ["cache", "search", "warehouse"]
    assert len({row for _, row in orders}) == 1
    assert re.search(r"\d+ transactions: .*\b[1-9]\d* key changes, [1-9]\d* deletes", demo.stderr)
    assert processes_of(folder) == []
    assert not folder.exists()


PAGE = "pipeline shop"


def parts(lines: list[str]) -> tuple[list[str], list[str], list[str]]:
    """The shapes of the lines before the live page and behind it, and the first words of the page's own."""
    shapes = [shape(line) for line in lines if line]
    begin = next(n for n, line in enumerate(shapes) if line.startswith(PAGE))
    end = next(n for n, line in enumerate(shapes) if re.match("0 transactions: ", line))
    return shapes[:begin], shapes[end:], [line.split()[0] for line in shapes[begin:end]]


@pytest.mark.slow
@pytest.mark.long
def test_the_picture_shows_the_demo_as_it_is_today(tmp_path: Path) -> None:
    """On a terminal it draws the live page, and has it drawn over by none of its own lines."""
    shown = run_demo(tmp_path / "demo", orders=400, seconds=3)
    assert shown.code == 0, shown.text
    assert shown.text.count(PAGE) == 2, "the page of the snapshot and that of the changes, each drawn in place"
    before, behind, page = parts([plain(line) for line in middle(shown)])
    pictured_before, pictured_behind, pictured_page = parts(written_in(PICTURE.read_text(encoding="utf-8")))
    assert (pictured_before, pictured_behind) == (before, behind)
    assert "$ cdc events orders" in before
    # A busy machine has looked once by then, and a pace takes two looks.
    assert set(pictured_page) - set(page) in (set(), {"per", "the"})
    # A store of a busy machine may lag behind a view: one warning, of two lines.
    assert set(page) - set(pictured_page) <= {"!", "LSN"}


def test_the_picture_asks_nobody_for_anything() -> None:
    picture = PICTURE.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert all(place.startswith("#demo-") for place in re.findall(r"url\(([^)]+)\)", picture))
    assert not re.search("<script|<image|href|@import", picture)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert "](tests/e2e/demo.svg)" in readme


@pytest.mark.slow
@pytest.mark.long
def test_a_demo_that_is_broken_off_leaves_no_process(spawn: Spawn, tmp_path: Path) -> None:
    folder, environment = folder_and_environment(tmp_path)
    demo = spawn("cdc", "demo", "--dir", folder, "--orders", "400", env=environment)
    wait_until(lambda: "$ cdc snapshot" in demo.stderr, 120, lambda: demo.stderr)
    assert len(processes_of(folder)) > 5
    os.kill(demo.process.pid, signal.SIGINT)
    assert demo.wait(60) == 130, demo.stderr
    assert "Traceback" not in demo.stderr
    wait_until(lambda: not processes_of(folder), 30, describe=lambda: processes_of(folder))
