"""The function that [views.NAME] post names: found, and refused in a sentence where it is none."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import ConfigError, Retry
from cdc.views.post_functions import TimeLimit, TookTooLong
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import planned
from connectors.views.view_planning import load_post
from tests.unit.cdc.views.test_masked_views import TABLES
from tests.unit.cdc.views.test_post_functions import ROW, plan

SLUG = "def add_slug(document):\n    return document | {'slug': 'made'}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one that a command runs in. Python's search path is as before at the end."""
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    sys.path[:] = [path for path in before if path]
    yield tmp_path
    sys.path[:] = before


def test_a_function_of_the_folder_is_found(folder: Path) -> None:
    (folder / "shop_views_a.py").write_text(SLUG, encoding="utf-8")
    (folder / "shop_views_b.py").write_text(SLUG + "# another\n", encoding="utf-8")
    made = load_post("v", "shop_views_a:add_slug", plan())
    assert '"slug":"made"' in made(ROW)
    assert made.digest == load_post("v", "shop_views_a:add_slug", plan()).digest
    assert made.digest != load_post("v", "shop_views_b:add_slug", plan()).digest


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("shop_views", "", r"\[views.v\] post is no function: shop_views"),
        ("shop_views:", "", r"post is no function"),
        ("shop_nowhere:f", "", "cannot be imported: No module named 'shop_nowhere'"),
        ("shop_views_c:f", "raise ValueError('a secret')", "cannot be imported: ValueError$"),
        ("shop_views_d:f", "def f(:", "cannot be imported: SyntaxError$"),
        ("shop_views_e:f", "f = 1", "the module shop_views_e has no function f"),
        ("sys:exit", "", "the module of sys:exit has no file"),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(folder: Path, name: str, source: str, words: str) -> None:
    (folder / f"{name.partition(':')[0]}.py").write_text(source, encoding="utf-8") if source else None
    with pytest.raises(ConfigError, match=words):
        load_post("v", name, plan())


HANGS = "from itertools import count\nfor _ in count():\n    pass\n"
LOOPS = """from itertools import count
def f(document):
    while document['id'] < 0 or document['slug'] is None:
        try:
            for _ in count():
                pass
        except Exception:
            pass
    return document
"""


def test_an_import_that_hangs_is_refused_in_a_sentence(folder: Path) -> None:
    (folder / "shop_views_hangs.py").write_text(HANGS, encoding="utf-8")
    with pytest.raises(ConfigError, match="importing shop_views_hangs took longer than its limit"):
        load_post("v", "shop_views_hangs:f", plan(), import_limit_s=0.05)
    assert "shop_views_hangs" not in sys.modules


def test_a_function_that_loops_parks_its_document(folder: Path) -> None:
    (folder / "shop_views_loops.py").write_text(LOOPS, encoding="utf-8")
    made = load_post("v", "shop_views_loops:f", plan(), limit_s=0.02)
    slow, quick = ROW, ROW.replace('"slug":null', '"slug":"made"')
    for _ in range(4):
        for _ in range(2):
            with pytest.raises(NotComputable, match="shop_views_loops:f took longer than its limit"):
                made(slow)
        assert '"slug":"made"' in made(quick)
    with pytest.raises(NotComputable):
        made(slow)
    with pytest.raises(NotComputable):
        made(slow)
    with pytest.raises(ConfigError, match="took longer than its limit on 11 documents") as stopped:
        made(slow)
    assert stopped.value.retry is Retry.NEVER


WAITS = "import threading\ndef f(document):\n    threading.Event().wait(20)\n    return document\n"


def test_a_function_that_waits_for_others_parks_its_document(folder: Path) -> None:
    (folder / "shop_views_waits.py").write_text(WAITS, encoding="utf-8")
    with pytest.raises(NotComputable, match="shop_views_waits:f took longer than its limit"):
        load_post("v", "shop_views_waits:f", plan(), limit_s=0.02)(ROW)


def test_a_call_that_nothing_interrupts_is_told_of() -> None:
    told = threading.Event()
    limit = TimeLimit(0.01, told.set, SYSTEM_CLOCK)

    def waits() -> bool:
        while not told.is_set():
            with suppress(BaseException):
                told.wait(5)
        return True

    with suppress(TookTooLong):
        limit.call(waits)
    assert told.is_set()


def test_a_timer_of_the_process_goes_on_behind_it() -> None:
    rang = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda _signal, _frame: rang.set())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        assert TimeLimit(5, lambda: None, SYSTEM_CLOCK).call(lambda: 7) == 7
        assert rang.wait(10) or rang.is_set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("sql", ["select mail, note from people", "select mail, row_to_json(p) as doc from people p"])
def test_h337_no_function_computes_with_masked_values(folder: Path, sql: str) -> None:
    (folder / "slugs.py").write_text("def same(document):\n    return document\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"has masked values in mail, and .* post would compute with them"):
        load_post("v", "slugs:same", planned(sql, TABLES, collation="C"))
    load_post("v", "slugs:same", planned("select id, mail from plain", TABLES, collation="C"))
