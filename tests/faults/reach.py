"""The code that an experiment reaches, as one digest: figures belong to the code that they were taken on.

Modules are followed by their imports, also by those inside functions, and by the names of modules in strings
(``"cdc.cli.sink"``, ``"sinks.cache.cache_store:open_cache"``) and in command lines (``["-m", "cdc", "sink"]``): that is
how a command and a store are found. What counts is the set of their top-level definitions, as syntax
trees without docstrings, comments, imports of the project's own and paths of modules, and the SQL and Lua beside them.
So a module that is only moved, split or described changes no digest.

The table of commands is looked up by the name that was called. It counts for nobody: a command added to it changes none
of the others, and each command's own module is followed by its name.

A package's ``__init__`` may load what its functions need when they are called, or what its names stand for when they
are first asked for (``__getattr__`` over a table). Such an import counts for those who import that function or name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark", "tests")
_MODULE = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+(?::\w+)?")
_DATA = ("*.sql", "*.lua")
_COMMANDS = "cdc/cli/app.py", "COMMANDS"
_FRAME = ("tests.conftest", "tests.fresh", "tests.fork_server", "tests.programs")
"""The suite's fixtures: experiments take a helper or two from them, and what those start is reached otherwise."""


def digest(*entries: str, without: tuple[str, ...] = (), root: Path = ROOT) -> str:
    """16 hex digits for all that these modules reach; another one as soon as any definition there differs."""
    return _joined(
        {part for entry in entries for module in reached(entry, without, root) for part in _parts(root, module)}
    )


def digest_of(files: Iterable[str], *words: str, root: Path = ROOT) -> str:
    """The same for these files alone, modules or not, for the tests of these folders, and for words."""
    parts = {_hash(word.encode()) for word in words}
    paths = [root / name for name in files]
    for file in (one for path in paths for one in (path.rglob("test_*.py") if path.is_dir() else (path,))):
        parts |= _definitions(file) if file.suffix == ".py" else {_hash(file.read_bytes())}
    return _joined(parts)


def _joined(parts: Iterable[str]) -> str:
    return sha256("\n".join(sorted({*parts})).encode()).hexdigest()[:16]


def reached(entry: str, without: tuple[str, ...] = (), root: Path = ROOT) -> set[str]:
    """The project's modules that ``entry`` reaches, itself among them. ``without``: modules that it calls
    nothing of, and packages of such."""
    found: set[str] = set(_FRAME)
    seen: set[Reach] = set()
    waiting = [Reach(entry, WHOLE)]
    while waiting:
        one = waiting.pop()
        if one not in seen and one.module not in _FRAME and not _within(one.module, without):
            seen.add(one)
            found.add(one.module)
            waiting += _imported(root, one)
    return found - {*_FRAME}


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return module in packages or module.startswith(tuple(f"{one}." for one in packages))


WHOLE = "*"
"""Of a module: everything that stands in it."""
_BODY = ""


class Reach(NamedTuple):
    """``name``: a function of the package, or a name that it loads when asked for; WHOLE, or its body alone."""

    module: str
    name: str


@cache
def _file(root: Path, module: str) -> Path | None:
    """The module's file; None where no module has the name."""
    path = root.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


@cache
def _imported(root: Path, one: Reach) -> frozenset[Reach]:
    """What that names, each with the packages that it stands in."""
    file = _file(root, one.module)
    assert file is not None, one.module
    package = one.module if file.name == "__init__.py" else one.module.rpartition(".")[0]
    late = _late(file)
    nodes: Sequence[ast.AST] = _tree(file).body
    if file.name == "__init__.py" and one.name != WHOLE:
        body = [node for node in _tree(file).body if not _is_late(node)]
        nodes = body if one.name == _BODY else [late[one.name]]
    parts = [part for node in nodes for part in ast.walk(node)]
    names = {name for part in parts for name in _named(part, package)}
    here = {part.id for part in parts if isinstance(part, ast.Name)} & set(late) if late else set()
    found = {*(Reach(one.module, name) for name in here), *_bodies(root, package)}
    return frozenset(found.union(*(_reaches(root, name) for name in names)) - {one})


def _bodies(root: Path, name: str) -> set[Reach]:
    """Of a package and of those around it: each runs before what stands in it."""
    parts = name.split(".")
    around = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return {Reach(one, _BODY) for one in around if parts[0] in PACKAGES and _file(root, one)}


def _reaches(root: Path, name: str) -> set[Reach]:
    """A dotted name's module, whole, or what it is called in its package; and the packages around it."""
    bodies = _bodies(root, name)
    last = max((one.module for one in bodies), key=len, default="")
    file = _file(root, last) if last else None
    if file is None:
        return set()
    called = name[len(last) + 1 :].partition(".")[0]
    if not called or file.name != "__init__.py":
        return {*bodies - {Reach(last, _BODY)}, Reach(last, WHOLE)}
    return {*bodies, *({Reach(last, called)} if called in _late(file) else ())}


@cache
def _late(file: Path) -> Mapping[str, ast.AST]:
    """Of a package: a function, or a name in the table of ``__getattr__``, with what loads it."""
    if file.name != "__init__.py":
        return {}
    found: dict[str, ast.AST] = {}
    for node in _tree(file).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _is_late(node):
            table = zip(node.value.keys, node.value.values, strict=True)
            found |= {
                key.value: value for key, value in table if isinstance(key, ast.Constant) if isinstance(key.value, str)
            }
    return found


def _is_late(node: ast.AST) -> bool:
    """A function, a table of modules, and what only a type checker reads."""
    match node:
        case ast.FunctionDef():
            return True
        case ast.Assign(value=ast.Dict(values=values)):
            return bool(values) and all(
                isinstance(one, ast.Constant) and isinstance(one.value, str) and _MODULE.fullmatch(one.value)
                for one in values
            )
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _named(node: ast.AST, package: str) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (one.name for one in node.names)
        case ast.ImportFrom():
            base = ".".join(package.split(".")[: package.count(".") + 2 - node.level]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            yield from (f"{source}.{one.name}" for one in node.names)
        case ast.Constant(value=str() as text) if _MODULE.fullmatch(text):
            yield text.replace(":", ".")
        case ast.List(elts=words):
            said = [str(word.value) for word in words if isinstance(word, ast.Constant)]
            if ("-m", "cdc") in pairwise(said):
                yield from (f"cdc.cli.{word}" for word in said)


@cache
def _parts(root: Path, module: str) -> frozenset[str]:
    """The digests of the module's top-level definitions, and of the SQL and Lua beside it."""
    file = _file(root, module)
    assert file is not None, module
    data = [data for pattern in _DATA for data in file.parent.glob(pattern)] if file.name == "__init__.py" else []
    return _definitions(file) | {_hash(one.read_bytes()) for one in data}


@cache
def _definitions(file: Path) -> frozenset[str]:
    body = _without_docstring(_tree(file).body)
    return frozenset(
        _hash(_text(node).encode()) for node in body if not _own_import(node) and not _lists_commands(file, node)
    )


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


def _own_import(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom():
            return bool(node.level) or (node.module or "").split(".")[0] in (*PACKAGES, "__future__")
        case ast.Import():
            return all(one.name.split(".")[0] in PACKAGES for one in node.names)
    return False


def _lists_commands(file: Path, node: ast.AST) -> bool:
    place, called = _COMMANDS
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name == called and file.as_posix().endswith(place)
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
