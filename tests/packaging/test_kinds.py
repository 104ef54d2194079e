"""A kind of store is named in its own folder: no other file of the product says which kinds there are."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from sinks.contract.kinds import kinds_of_ours

ROOT = Path(__file__).parents[2]
KINDS = {kind.name: Path(*kind.opener.partition(":")[0].split(".")[:-1]) for kind in kinds_of_ours()}
SERVERS = {
    "cdc/stack": "starts servers by product",
    "cdc/jvm": "fetches a server's jars",
    "cdc/demo": "asks its servers by product",
    "cdc/process/logs.py": "the name of a client's own logger",
}


@cache
def named() -> set[tuple[str, str]]:
    """Files of the product, with the kinds whose name or settings model they have in their code."""
    found = set()
    for package in ("cdc", "connectors", "sinks", "snapshot", "spark"):
        for file in (ROOT / package).rglob("*.py"):
            code = file.read_text(encoding="utf-8")
            if not any(kind in code or _model(kind) in code for kind in KINDS):
                continue
            nodes = list(ast.walk(ast.parse(code)))
            texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            place = str(file.relative_to(ROOT))
            found |= {(place, kind) for kind in KINDS if kind in texts or _model(kind) in names}
    return found


@cache
def _model(kind: str) -> str:
    return next(one.settings.__name__ for one in kinds_of_ours() if one.name == kind)


def test_a_kind_is_named_in_its_folder_alone() -> None:
    elsewhere = {
        (place, kind)
        for place, kind in named()
        if not Path(place).is_relative_to(KINDS[kind]) and not any(Path(place).is_relative_to(one) for one in SERVERS)
    }
    assert sorted(elsewhere) == []


def test_each_kind_has_a_folder_of_its_own_that_names_it() -> None:
    assert len(set(KINDS.values())) == len(KINDS) == 5
    assert {(str(folder / f"{folder.name}_kind.py"), kind) for kind, folder in KINDS.items()} <= named()
