"""Ctrl-C while modules load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.process.interrupted_imports import ending_at_once

SLOW = """
import os
with open(os.environ["LOADING"], "w") as told:
    told.write("x")
os.read(int(os.environ["NEVER"]), 1)
"""


@pytest.mark.parametrize("module", ["typer", "cdc.cli.status"])
def test_h136_ctrl_c_while_modules_load_is_quiet(tmp_path: Path, module: str) -> None:
    shadow = tmp_path / "sitecustomize.py"
    shadow.write_text(
        # A shell's background job inherits that Ctrl-C is ignored.
        "import signal, sys, importlib.abc, importlib.util\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        return importlib.util.spec_from_loader(name, self) if name == {module!r} else None\n"
        f"    def exec_module(self, made):\n        exec({SLOW!r})\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    loading = tmp_path / "loading"
    os.mkfifo(loading)
    never, end = os.pipe()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "LOADING": str(loading), "NEVER": str(never)}
    process = subprocess.Popen(
        [sys.executable, "-m", "cdc", "status"], env=environment, pass_fds=[never], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[4],
    )  # fmt: skip
    try:
        assert loading.read_text() == "x"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        os.close(never)
        os.close(end)
    assert (process.returncode, out, err) == (130, "", "")


def test_ctrl_c_is_as_before_when_they_have_loaded() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ending_at_once():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_h136_ctrl_c_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ending_at_once():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
