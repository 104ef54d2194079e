"""A browser that ends at once is told with its own words, and not after a wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import opened_browser

pytestmark = pytest.mark.slow


def test_a_browser_that_ends_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\necho libsomething is not found >&2\nexit 127\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("CDC_CHROMIUM", str(program))
    with pytest.raises(AssertionError, match="has ended: libsomething is not found"), opened_browser(tmp_path / "p"):
        pass
