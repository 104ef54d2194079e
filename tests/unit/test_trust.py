"""SECURITY.md, "What comes in", as rules over the tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cdc.process.sql_files import load
from cdc.settings.mask_rules import NO_MASKS
from connectors.postgres.encoding import compiled
from connectors.postgres.encoding.encoder import compile_table
from sinks.cache.cached_values import KEEP
from tests.contract.topics import column, shape

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "pyspark_headrace", "sinks", "snapshot", "spark")
UNPICKLE = {"spark/frames/pickled_source.py", "spark/queries/task_reports.py"}
"""What Spark's driver and its workers hand each other."""
EVALUATE = {"cdc/views/compiling.py", "cdc/views/group_plan.py", "connectors/postgres/encoding/compiled.py"}
"""Of a view's text, and of a table's columns by their numbers."""
READS_PICKLES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
DOUBLED = re.compile(r"""replace\((['"])"\1, (['"])""\2\)""")


def modules() -> Iterator[tuple[str, str]]:
    """Path and text of each module that is shipped."""
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def called(text: str) -> set[str]:
    """Every function that is called, as it is named there."""
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}


def test_only_these_modules_unpickle_or_evaluate() -> None:
    asked = re.compile(rf"\b(?:exec|eval|yaml\.load|os\.system|os\.popen|{'|'.join(READS_PICKLES)})\b")
    calls = {path: called(text) for path, text in modules() if asked.search(text)}
    reading = {f"{name}.{how}" for name in READS_PICKLES for how in ("load", "loads", "Unpickler", "open")}
    assert {path for path, names in calls.items() if names & reading} == UNPICKLE
    assert {path for path, names in calls.items() if names & {"exec", "eval"}} == EVALUATE
    assert {path for path, names in calls.items() if names & {"yaml.load", "os.system", "os.popen"}} == set()


@given(st.lists(st.text(min_size=1, max_size=12).filter(lambda name: "\0" not in name), min_size=1, unique=True))
def test_no_name_of_a_table_stands_in_code_made_at_run(names: list[str]) -> None:
    """Whatever columns are named, tables of the same types share the code that is made."""
    columns = [column(f"plain{number}", "text") for number in range(len(names))]
    plain = compile_table(shape(column("id", "int8", key=1), *columns), name="shop", database="shop", masks=NO_MASKS)
    assert plain.rows.new is not None
    before = compiled._code.cache_info().misses
    named = [column(f"k{name}", "text") for name in names]
    other = compile_table(shape(column("id", "int8", key=1), *named), name="shop", database="shop", masks=NO_MASKS)
    assert other.rows.new is not None
    assert compiled._code.cache_info().misses == before


def test_one_function_quotes_identifiers() -> None:
    """Beside it only the text of a condition is shown so, which is parsed again."""
    assert {path for path, text in modules() if DOUBLED.search(text)} == {
        "cdc/record/row_condition.py",
        "cdc/process/sql_files.py",
    }


def test_scripts_are_files_that_nothing_is_put_into() -> None:
    scripts = {file: load("sinks.cache", f"{file}.lua") for file in ("rows", "place")}
    for file, named in scripts.items():
        text = (ROOT / "sinks" / "cache" / f"{file}.lua").read_text(encoding="utf-8")
        assert all(script in text for script in named.values())
    assert sum(map(len, scripts.values())) == 7
    assert scripts["rows"]["fill"] == KEEP
    assert {path for path, text in modules() if "redis.call" in text} == set()
