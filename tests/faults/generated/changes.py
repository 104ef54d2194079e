"""Every small change of a module's syntax tree that a test should notice, one at a time.

Comparisons get their neighbours (``<`` becomes ``<=`` and ``>=``), numbers go up and down by one, ``and`` becomes
``or`` and loses a side, ``not`` goes, arguments change places, and statements are left out: calls, assignments to
attributes, ``raise``, ``return``, ``continue``. Words for people are left alone: errors' texts, log lines.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_SHOWN = 90
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_REPLACED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SYMMETRIC = {"min", "max", "isinstance", "cast", "getattr"}
_NO_CHANGE = {"debug", "info", "warning", "exception", "log", "crash_point", "declare"}
"""Calls that say something to people, and places where the laboratory alone stops."""
_UNTOUCHED = {"field", "TypeVar", "NewType", "cast", "getLogger", "crash_point", "declare"}
_NAMES = {"__repr__", "__str__", "__all__", "__slots__"}


@dataclass(frozen=True, slots=True)
class Change:
    """One change. ``place``: the function or class, empty outside. ``number`` tells equal ones apart.

    ``function``: the line of the outermost function around it, 0 where there is none.
    """

    place: str
    line: int
    before: str
    after: str
    number: int
    function: int

    @property
    def name(self) -> str:
        """What it is called in the list of survivors: stays when lines move."""
        again = f" #{self.number}" if self.number else ""
        return f"{self.place or 'module'}: {self.before} -> {self.after}{again}"


@dataclass(frozen=True, slots=True)
class _Around:
    """What a node stands in."""

    place: str = ""
    function: int = 0


@dataclass(slots=True)
class _Slot:
    """A place in the tree that holds a node."""

    holder: Any
    name: str
    index: int | None
    node: ast.AST
    around: _Around

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.holder, self.name, node)
        else:
            getattr(self.holder, self.name)[self.index] = node


@dataclass(slots=True)
class _Named:
    """Numbers for changes that look alike."""

    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def change(self, slot: _Slot, new: ast.AST) -> Change:
        before, after = _shown(slot.node), _shown(new)
        alike = (slot.around.place, before, after)
        self.seen[alike] += 1
        # The condition of a comprehension has no line of its own.
        line = getattr(slot.node, "lineno", 0) or getattr(getattr(slot.node, "target", None), "lineno", 0)
        return Change(slot.around.place, line, before, after, self.seen[alike] - 1, slot.around.function)


def changes(tree: ast.Module) -> Iterator[Change]:
    """Each change in turn; ``tree`` is changed while its description is out, and mended afterwards."""
    named = _Named()
    for slot in list(_slots(tree, _Around())):
        for new in _others(slot.node, slot.around):
            ast.copy_location(new, slot.node)
            ast.fix_missing_locations(new)
            slot.put(new)
            yield named.change(slot, new)
            slot.put(slot.node)


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _slots(node: ast.AST, around: _Around) -> Iterator[_Slot]:
    for name, value in ast.iter_fields(node):
        if name in _LEFT_ALONE.get(type(node), ()):
            continue
        inside = around if name in ("args", "decorator_list") else _inside(node, around)
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST) and not _for_people(child):
                yield _Slot(node, name, index, child, inside)
                yield from _slots(child, inside)


_LEFT_ALONE: dict[type[ast.AST], tuple[str, ...]] = {
    ast.FunctionDef: ("returns", "decorator_list"),
    ast.AsyncFunctionDef: ("returns", "decorator_list"),
    ast.ClassDef: ("bases", "keywords", "decorator_list"),
    ast.AnnAssign: ("annotation", "target"),
    ast.arg: ("annotation",),
    ast.Raise: ("exc", "cause"),
    ast.Assign: ("targets",),
    ast.ExceptHandler: ("type",),
}
"""Fields of a node that are types, names of places to store, or words."""


def _for_people(node: ast.AST) -> bool:
    """Whether nothing in the node is to be changed."""
    if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.MatchValue | ast.MatchMapping):
        return True
    match node:
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
            return name in _NAMES
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))) if name in _NO_CHANGE:
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in _UNTOUCHED or name.endswith("Error")
    return False


def _inside(node: ast.AST, around: _Around) -> _Around:
    match node:
        case ast.FunctionDef(name=name, lineno=line) | ast.AsyncFunctionDef(name=name, lineno=line):
            return _Around(f"{around.place}.{name}".lstrip("."), around.function or line)
        case ast.ClassDef(name=name):
            return _Around(f"{around.place}.{name}".lstrip("."), around.function)
    return around


def _others(node: ast.AST, around: _Around) -> Iterator[ast.AST]:
    """What the node becomes."""
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BinOp(op=op) if type(op) in _REPLACED and not _a_type(node, around):
            yield ast.BinOp(node.left, _REPLACED[type(op)](), node.right)
        case ast.AugAssign(op=op) if type(op) in _REPLACED:
            yield ast.AugAssign(node.target, _REPLACED[type(op)](), node.value)
            yield ast.Pass()
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.If() if isinstance(node.test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr):
            yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, node.ifs[1:], node.is_async)
        case _:
            yield from _by_kind(node)


def _by_kind(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BoolOp():
            yield from _joined(node)
        case ast.Constant():
            yield from _constants(node)
        case ast.Call():
            yield from _called(node)
        case ast.stmt():
            yield from _left_out(node)


def _a_type(node: ast.BinOp, around: _Around) -> bool:
    """``A | B`` outside of functions is the name of a type."""
    return isinstance(node.op, ast.BitOr) and not around.function


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for index, op in enumerate(node.ops):
        for other in _COMPARED[type(op)]:
            yield ast.Compare(node.left, [*node.ops[:index], other(), *node.ops[index + 1 :]], node.comparators)


def _joined(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for index in range(len(node.values)):
        left = [*node.values[:index], *node.values[index + 1 :]]
        yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    match node.value:
        case bool() as value:
            yield ast.Constant(not value)
        case int() as value:
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case float() as value:
            yield ast.Constant(value + 1)
        case str() as value if value and " " not in value:
            yield ast.Constant(value + "~")
        case bytes() as value if value:
            yield ast.Constant(value + b"~")


def _called(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _OPPOSITES:
        yield ast.Call(ast.Name(_OPPOSITES[name], ast.Load()), node.args, node.keywords)
    if name in _SYMMETRIC:
        return
    for index in range(len(node.args) - 1):
        first, second = node.args[index : index + 2]
        starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
        if not starred and ast.dump(first) != ast.dump(second):
            args = [*node.args[:index], second, first, *node.args[index + 2 :]]
            yield ast.Call(node.func, args, node.keywords)


def _left_out(node: ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            # Still a generator.
            yield ast.If(ast.Constant(False), [node], [])
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
