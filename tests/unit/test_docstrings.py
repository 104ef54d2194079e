"""What is public says what it promises, and what a docstring names exists.

A method inherits the docstring of the method of its name in a base class, or in the port that its class's docstring
names as ``Implements :class:`package.module.Port```: ports are Protocols, and say what every implementation keeps to.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark")
REFERENCE = re.compile(r":(?:class|func|mod|data|attr|meth):`~?([\w.]+)`")
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product by its dotted name."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return {names[path]: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def public(body: list[ast.stmt], owner: ast.ClassDef | None = None) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """Functions and methods without a leading underscore, but for those inside functions and setters."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public(node.body, node)
        elif isinstance(node, FUNCTION) and not node.name.startswith("_"):
            decorators = [ast.unparse(one) for one in node.decorator_list]
            if not any(one == "overload" or one.endswith(".setter") for one in decorators):
                yield node, owner


@cache
def documented() -> dict[str, set[str]]:
    """Class -> its methods with a docstring, its own and inherited ones."""
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = [one for one in node.body if isinstance(one, FUNCTION)]
                own[node.name] |= {one.name for one in methods if ast.get_docstring(one)}
                bases[node.name] |= parents(node)
    for _ in range(4):
        for name, found in bases.items():
            own[name] |= {method for base in found for method in own.get(base, ())}
    return own


def parents(node: ast.ClassDef) -> set[str]:
    """The last names of its bases, and of the classes that its docstring names."""
    named = {name.rpartition(".")[2] for name in REFERENCE.findall(ast.get_docstring(node) or "")}
    return named | {ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases}


def test_every_public_function_says_what_it_promises() -> None:
    silent = [
        f"{module}.{owner.name + '.' if owner else ''}{node.name}"
        for module, tree in modules().items()
        for node, owner in public(tree.body)
        if not ast.get_docstring(node) and (owner is None or node.name not in documented()[owner.name])
    ]
    assert not silent


def test_a_docstring_names_an_error_that_its_function_raises() -> None:
    """At least one of the classes that it raises itself. The help of a command speaks of exit codes instead."""
    silent = [
        f"{module}.{owner.name + '.' if owner else ''}{node.name}: {', '.join(sorted(raised))}"
        for module, tree in modules().items()
        for node, owner in public(tree.body)
        if (text := ast.get_docstring(node)) and (raised := set(raised_in(node.body)))
        if not is_command(module, node) and not any(re.search(rf"\b{name}\b", text) for name in raised)
    ]
    assert not silent, "say when it raises which:\n" + "\n".join(silent)


def raised_in(body: Iterable[ast.AST]) -> Iterator[str]:
    """The classes that a function raises by name, but for those of functions inside of it."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                continue
            case ast.Raise(exc=ast.Call(func=named)) | ast.Raise(exc=ast.expr() as named):
                # A helper's name begins with a small letter: `raise refused(...)`.
                yield from (name for name in [ast.unparse(named).rpartition(".")[2]] if name[:1].isupper())
        yield from raised_in(ast.iter_child_nodes(node))


def is_command(module: str, node: Function) -> bool:
    """Whether its docstring is what ``cdc ... --help`` prints: text for users, who meet exit codes and no classes."""
    decorated = any(".command(" in ast.unparse(one) for one in node.decorator_list)
    return module.startswith("cdc.cli.") and (decorated or module == f"cdc.cli.{node.name}")


def test_what_a_docstring_names_exists() -> None:
    missing = [
        f"{module}: {name}"
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in REFERENCE.findall(node.value)
        if name.partition(".")[0] in PACKAGES and not exists(name)
    ]
    assert not missing


def exists(name: str) -> bool:
    """Whether a dotted name is a module, a name of one, or an attribute of such a name."""
    if name in modules():
        return True
    parent, _, last = name.rpartition(".")
    return last in names_of(parent) or parent.rpartition(".")[2] in names_of(parent.rpartition(".")[0])


@cache
def names_of(module: str) -> frozenset[str]:
    """The names that a module's top level binds. Empty where there is no such module."""
    found: set[str] = set()
    for node in modules()[module].body if module in modules() else ():
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.add(node.name)
            case ast.Assign():
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.ImportFrom():
                found |= {one.asname or one.name for one in node.names}
    return frozenset(found)
