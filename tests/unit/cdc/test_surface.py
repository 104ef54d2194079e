"""What ``from cdc import ...`` gives a program: all of it there, said in the manual, and loaded when asked for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cdc
import cdc.read

ROOT = Path(__file__).parents[3]
MANUAL = (ROOT / "cdc" / "README.md").read_text(encoding="utf-8")
SECTION = MANUAL.partition("## In a Python program")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", cdc.__all__)
def test_each_name_is_there_and_in_the_manual(name: str) -> None:
    found = getattr(cdc, name)
    assert name == "__version__" or found.__doc__
    assert re.search(rf"`{name}[`(]", SECTION)


def test_the_manual_names_nothing_else() -> None:
    rows = [line.split("|")[1] for line in SECTION.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert named == set(cdc.__all__)
    assert set(cdc.__all__) <= set(dir(cdc))


def test_the_examples_use_these_names_alone() -> None:
    for code in re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cdc"):
                if node.module == "cdc.read":
                    assert {alias.name for alias in node.names} <= set(cdc.read.__all__)
                    continue
                assert node.module == "cdc"
                assert {alias.name for alias in node.names} <= set(cdc.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'capture_everything'"):
        _ = cdc.capture_everything  # type: ignore[attr-defined]


def test_importing_the_package_loads_none_of_it() -> None:
    code = "import sys, cdc; print(sorted(m for m in sys.modules if m.startswith(('cdc', 'pydantic', 'typer'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['cdc', 'cdc.process']"


def test_doubles_for_tests_import_no_feature() -> None:
    code = "import sys, tests.memory_log; print(sorted(m for m in sys.modules if m.startswith('cdc')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stdout)
    above = [
        "wiring", "cli", "freshness", "operate", "status",
        "verification", "views",
    ]  # fmt: skip
    assert [name for name in above if not (ROOT / "cdc" / name).is_dir()] == []
    assert "cdc.record.ports" in loaded
    assert [name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in above] == []
