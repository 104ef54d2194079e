"""The code that an experiment reaches, as one digest: figures belong to the code that they were taken on.

Modules are followed by their imports, also by those inside functions, and by the names of modules in strings
(``"cdc.cli.sink"``): that is how a command is found. What counts is the set of their top-level definitions, as syntax
trees without docstrings, comments, imports of the project's own and paths of modules, and the SQL and Lua beside them.
So a module that is only moved, split or described changes no digest.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark", "tests")
_MODULE = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+")
_DATA = ("*.sql", "*.lua")
_FRAME = ("tests.conftest", "tests.fresh", "tests.fork_server", "tests.programs")
"""The suite's fixtures: experiments take a helper or two from them, and what those start is reached otherwise."""


def digest(*entries: str, root: Path = ROOT) -> str:
    """16 hex digits for all that these modules reach; another one as soon as any definition there differs."""
    parts = {part for entry in entries for module in reached(entry, root) for part in _parts(root, module)}
    return sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]


def reached(entry: str, root: Path = ROOT) -> set[str]:
    """The project's modules that ``entry`` reaches, itself among them."""
    found: set[str] = set(_FRAME)
    waiting = [entry]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += _imported(root, module)
    return found - {*_FRAME}


@cache
def _file(root: Path, module: str) -> Path | None:
    """The module's file; None where no module has the name."""
    path = root.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


@cache
def _imported(root: Path, module: str) -> frozenset[str]:
    """What the module names, each with the packages that it stands in."""
    file = _file(root, module)
    assert file is not None, module
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names = {name for node in ast.walk(_tree(file)) for name in _named(node, package)} | {module}
    whole = {".".join(name.split(".")[:end]) for name in names for end in range(1, name.count(".") + 2)}
    return frozenset(name for name in whole if name.split(".")[0] in PACKAGES and _file(root, name)) - {module}


def _named(node: ast.AST, package: str) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (one.name for one in node.names)
        case ast.ImportFrom():
            base = ".".join(package.split(".")[: package.count(".") + 2 - node.level]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            yield from (f"{source}.{one.name}" for one in node.names)
        case ast.Constant(value=str() as text) if _MODULE.fullmatch(text):
            yield text


@cache
def _parts(root: Path, module: str) -> frozenset[str]:
    """The digests of the module's top-level definitions, and of the SQL and Lua beside it."""
    file = _file(root, module)
    assert file is not None, module
    parts = {_hash(_text(node).encode()) for node in _without_docstring(_tree(file).body) if not _own_import(node)}
    if file.name == "__init__.py":
        parts |= {_hash(data.read_bytes()) for pattern in _DATA for data in file.parent.glob(pattern)}
    return frozenset(parts)


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


def _own_import(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom():
            return bool(node.level) or (node.module or "").split(".")[0] in (*PACKAGES, "__future__")
        case ast.Import():
            return all(one.name.split(".")[0] in PACKAGES for one in node.names)
    return False


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Strings that stand alone are words about what is beside them."""
    return [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]


def _text(node: object) -> str:
    """As ``ast.dump``, but alike in every Python: empty fields are left out."""
    if isinstance(node, ast.AST):
        fields = []
        for name, value in ast.iter_fields(node):
            kept = value
            if name == "body" and isinstance(value, list):
                kept = [one for one in _without_docstring(value) if not _own_import(one)]
            if kept not in (None, []):
                fields.append(f"{name}={_text(kept)}")
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(map(_text, node))}]"
    return "''" if isinstance(node, str) and _MODULE.fullmatch(node) else repr(node)
