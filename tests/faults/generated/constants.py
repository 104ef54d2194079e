"""Puts a changed constant of a module in its place, without importing anything anew.

Only where that is the same as an import: the statement gives a name its value, and nothing but the bodies of the same
module's functions uses it, or other such statements, which are run again too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator
from types import ModuleType


def replaced(tree: ast.Module, line: int, module: str, packages: Collection[str]) -> Callable[[], None] | None:
    """What puts the constants at this line of a changed module in their place. None where only an import can.

    ``module``: its name, under which the sound one is imported. ``packages``: where others may have taken the names.
    """
    sound = sys.modules.get(module)
    again = _statements(tree, line)
    if sound is None or again is None or _taken(_names(again), sound, packages):
        return None
    code = compile(ast.Module(body=list(again), type_ignores=[]), module, "exec", dont_inherit=True)

    def put() -> None:
        exec(code, vars(sound))

    return put


def _statements(tree: ast.Module, line: int) -> list[ast.stmt] | None:
    """The statement at this line and those that depend on it. None where one of them is no mere assignment."""
    found: list[ast.stmt] = []
    names: set[str] = set()
    for statement in tree.body:
        here = statement.lineno <= line <= (statement.end_lineno or statement.lineno)
        if not here and not names.intersection(_read(statement)):
            continue
        targets = _targets(statement)
        if targets is None:
            return None
        found.append(statement)
        names.update(targets)
    return found or None


def _names(statements: list[ast.stmt]) -> set[str]:
    return {name for statement in statements for name in _targets(statement) or ()}


def _targets(statement: ast.stmt) -> list[str] | None:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return [name]
        case ast.Assign(targets=[ast.Tuple(elts=parts)]) if all(isinstance(part, ast.Name) for part in parts):
            return [part.id for part in parts if isinstance(part, ast.Name)]
    return None


def _read(node: ast.AST) -> Iterator[str]:
    """Names that are read when the module is imported: not in the bodies of functions, nor in annotations."""
    match node:
        case ast.Name(id=name):
            yield name
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
                yield from _read(part)
        case ast.Lambda():
            for part in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                yield from _read(part)
        case ast.AnnAssign(value=value):
            yield from _read(value) if value is not None else ()
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _read(child)


def _taken(names: Collection[str], sound: ModuleType, packages: Collection[str]) -> bool:
    """Whether another module of the packages has one of the values under its name."""
    others = [one for name, one in sys.modules.items() if name.split(".")[0] in packages and one is not sound]
    return any(
        name in vars(one) and vars(one)[name] is vars(sound).get(name) for one in others for name in names
    )  # fmt: skip
