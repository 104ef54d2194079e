"""JSON that is kept takes as much memory as it is long, so that bounds in bytes are bounds of memory."""

from __future__ import annotations

import ast
import tracemalloc
from pathlib import Path

import pytest

from cdc.record.documents import dumped
from cdc.record.state import FormState
from cdc.wire.plain import PlainTable
from tests.contract.topics import ORDERS, column, shape

ROOT = Path(__file__).parents[4]
PACKAGES = ("cdc", "connectors", "pyspark_headrace", "sinks", "snapshot", "spark")
AT_ONCE = {
    "cdc/jvm/jars.py", "cdc/stack/local.py", "cdc/stack/supervisor.py",  # written to a file
    "cdc/views/known_views.py",  # hashed
    "cdc/wire/debezium/wrapped.py",  # hashed
    "cdc/wire/jsontree.py",  # a part of a row
    "sinks/search/search_client.py", "sinks/search/search_indexes.py",  # sent
    "sinks/search/search_store.py",
    "sinks/contract/missing_values.py",  # compared
    "spark/queries/task_reports.py",  # put into a table
    "cdc/record/documents.py",
}  # fmt: skip
"""Modules whose bytes are gone when the next ones are made."""
MANY = 2_000
MOST_BYTES = 400
WIDE = shape(column("id", "int8", key=1), column("d", "date"), encoding="debezium")


def documents(number: int) -> list[bytes]:
    """What capture and sinks keep by the thousand."""
    form = FormState(table=f"public.t{number}", oid=number, columns=[], leaves=[], publication="")
    row = PlainTable(WIDE).row(b'{"id":%d,"d":18000}' % number)
    return [dumped({"id": number}), form.key(), form.to_json(), row, ORDERS.topic_key()]


@pytest.mark.parametrize("which", range(5))
def test_h102_kept_json_takes_the_memory_of_its_length(which: int) -> None:
    tracemalloc.start()
    try:
        kept = [documents(number)[which] for number in range(MANY)]
        traced = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, str(ROOT / "cdc" / "*.py"))])
    finally:
        tracemalloc.stop()
    taken = sum(one.size for one in traced.statistics("lineno")) / MANY
    assert len(kept[0]) <= taken < len(kept[0]) + MOST_BYTES


def test_h102_no_bytes_of_orjsons_own_are_kept() -> None:
    """Its text and slices are copies; a module that uses the bytes at once stands in the list above."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    codes = {path: path.read_text(encoding="utf-8") for path in paths}
    found = {str(path.relative_to(ROOT)) for path in paths if "orjson" in codes[path] and takes_bytes(codes[path])}
    assert found == AT_ONCE


def takes_bytes(code: str) -> bool:
    """Whether it makes no text and no slice of what ``orjson.dumps`` returns, or passes the function on."""
    nodes = list(ast.walk(ast.parse(code)))
    dumps = {node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "dumps" and of_orjson(node)}
    decoded = {node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "decode"}
    sliced = {node.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)}
    return bool(dumps - {node.func for node in decoded | sliced if isinstance(node, ast.Call)})


def of_orjson(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "orjson"
