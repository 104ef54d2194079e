"""The function that [views.NAME] post names: found, and refused in a sentence where it is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.errors import ConfigError
from connectors.view_posts import load_post
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
