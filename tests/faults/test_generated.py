"""The maker of mutants, tried: each kind of change, where it lies, and what notices it."""

from __future__ import annotations

import ast
import os
import sys
import threading
from types import ModuleType

import pytest

from tests.faults.generated.changes import Change, changes
from tests.faults.generated.constants import replaced
from tests.faults.generated.forks import in_child, shared, work_of
from tests.faults.generated.judge import _swapped
from tests.faults.generated.rooms import ROOMS, ROOT, Listed, found, listed


def made(code: str) -> dict[str, str]:
    """Name of each change -> the code with it."""
    tree = ast.parse(code)
    found = {change.name: ast.unparse(tree) for change in changes(tree)}
    assert ast.unparse(tree) == ast.unparse(ast.parse(code)), "the tree is as before"
    return found


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        ("x = a < b", {"x = a <= b", "x = a >= b"}),
        ("x = a == b", {"x = a != b"}),
        ("x = a is None", {"x = a is not None"}),
        ("x = a in b", {"x = a not in b"}),
        ("x = a and b", {"x = a or b", "x = b", "x = a"}),
        ("x = not a", {"x = a"}),
        ("x = 7", {"x = 8", "x = 6"}),
        ("x = True", {"x = False"}),
        ("x = 'op'", {"x = 'op~'"}),
        ("x = 'words for people'", set()),
        ("x = a + b", {"x = a - b"}),
        ("x += y", {"x -= y", "pass"}),
        ("f(a, b)", {"f(b, a)", "pass"}),
        ("f(a, a)", {"pass"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("x = a if b else c", {"x = c if b else a"}),
        ("if f():\n    g()", {"if not f():\n    g()", "if f():\n    pass"}),
        ("raise ValueError('a', 7)", {"pass"}),
        ("log.info('read', extra={'n': 1})", set()),
        ("assert a < b", set()),
        ("crash_point('sent')", set()),
        ("__all__ = ['f']", set()),
        ("x: int = 7", {"x: int = 8", "x: int = 6"}),
        ("del x[a]", {"pass"}),
        ("x = [a for a in b if c]", {"x = [a for a in b]"}),
    ],
)
def test_each_kind_of_change(code: str, becomes: set[str]) -> None:
    assert set(made(code).values()) == becomes


def test_a_change_is_named_by_its_place_and_not_by_its_line() -> None:
    code = "class A:\n    def f(self):\n        self.x = 1\n        return 1\n"
    names = list(made(code))
    assert names == list(made(f"\n\n{code}"))
    assert "A.f: self.x = 1 -> pass" in names
    assert len(names) == len(set(names))
    assert "A.f: 1 -> 2 #1" in names


def test_each_change_has_a_line_by_which_its_tests_are_found() -> None:
    tree = ast.parse("def f(b):\n    return [\n        a\n        for a in b if a\n    ]\n")
    lines = {change.before: change.line for change in changes(tree)}
    assert lines["for a in b if a"] == 4
    assert all(lines.values())


def test_a_generator_stays_one() -> None:
    assert "if False:\n        yield 1" in made("def f():\n    yield 1")["f: yield 1 -> if False: yield 1"]


def test_code_is_swapped_in_the_functions_that_have_it() -> None:
    code = "def f(a):\n    return a < 3\n"
    tree = ast.parse(code)
    sound = compile(tree, "f.py", "exec", dont_inherit=True)
    space: dict[str, object] = {}
    exec(sound, space)
    function = space["f"]
    assert callable(function)
    change: Change
    for change in changes(tree):
        if change.after == "a <= 3":
            broken = compile(tree, "f.py", "exec", dont_inherit=True)
            swapped = _swapped(sound, broken, {("f", 1): [function]})  # type: ignore[list-item]
            assert swapped is not None
            (new,) = swapped.values()
    assert function(3) is False
    function.__code__ = new  # type: ignore[attr-defined]
    assert function(3) is True


def test_a_process_that_hangs_is_given_up_one_that_works_is_not() -> None:
    assert in_child(lambda: 7) == 7
    began = work_of(os.getpid())
    while work_of(os.getpid()) == began:
        pass
    assert began[0] == "R"
    assert in_child(threading.Event().wait, stuck_s=0.3) is None
    assert in_child(lambda: 1 / 0) is None


def test_work_in_shares_is_done_by_as_many_processes() -> None:
    ours, theirs = os.pipe()
    assert shared(3, lambda share: [os.write(theirs, b"%d " % share)].clear())
    os.close(theirs)
    with os.fdopen(ours, "rb") as said:
        assert sorted(said.read().split()) == [b"0", b"1", b"2"]
    assert not shared(2, lambda share: [1 // (1 - share)].clear())


CONSTANTS = """
import re
A = 3
B, C = A + 1, "word"
D = [7]
E: dict[str, int] = {"a": A}
def f(limit=D[0]):
    return A + B + len(C)
class K:
    x = C
"""


def put_in_place(line: int, code: str) -> ModuleType | None:
    """The module with the constants at a line of ``code`` put in place of its own."""
    sound = ModuleType("cdc._constants_tried")
    exec(CONSTANTS, vars(sound))
    sys.modules[sound.__name__] = sound
    try:
        put = replaced(ast.parse(code), line, sound.__name__, ["cdc"])
    finally:
        del sys.modules[sound.__name__]
    if put is None:
        return None
    put()
    return sound


def test_a_constant_is_put_in_its_place_with_those_made_of_it() -> None:
    changed = put_in_place(6, CONSTANTS.replace('"a": A', '"a": 9'))
    assert changed is not None
    assert (changed.E, changed.f()) == ({"a": 9}, 11)
    # A class took C when it was made, and a function took D: only an import changes these.
    assert put_in_place(4, CONSTANTS.replace("word", "longer")) is None
    assert put_in_place(5, CONSTANTS.replace("[7]", "[8]")) is None
    less = CONSTANTS.replace("    x = C", "    x = 1")
    more = put_in_place(3, less.replace("A = 3", "A = 4"))
    assert more is not None
    assert (more.A, more.B, more.E, more.f()) == (4, 5, {"a": 4}, 13)


def test_a_constant_that_another_took_is_not_put_in_place() -> None:
    other = ModuleType("cdc._constants_taken")
    sound = ModuleType("cdc._constants_tried")
    exec(CONSTANTS, vars(sound))
    vars(other)["E"] = sound.E
    sys.modules.update({one.__name__: one for one in (sound, other)})
    try:
        assert replaced(ast.parse(CONSTANTS), 6, sound.__name__, ["cdc"]) is None
        assert replaced(ast.parse(CONSTANTS), 6, sound.__name__, ["sinks"]) is not None
        assert replaced(ast.parse(CONSTANTS), 2, sound.__name__, ["sinks"]) is None
    finally:
        for one in (sound, other):
            del sys.modules[one.__name__]


def test_each_room_is_there_with_its_tests() -> None:
    for name, room in ROOMS.items():
        assert all(file.is_relative_to(ROOT) for file in room.files), name
        for pattern in room.tests:
            assert list(ROOT.glob(pattern)), f"{name}: {pattern}"


def test_what_is_listed_is_still_a_change_of_its_module() -> None:
    entries = list(listed())
    files = {found(entry.module) for entry in entries}
    every = {str(f.relative_to(ROOT)): [c.name for c in changes(ast.parse(f.read_bytes()))] for f in files}
    for entry in entries:
        assert len(entry.why) > 10, entry
        assert any(entry.meets(file, name) for file, names in every.items() for name in names), entry


def test_a_star_stands_for_anything() -> None:
    entry = Listed("cdc/record/position.py", "A.f: * -> 2", "a reason")
    assert entry.meets("cdc/record/position.py", "A.f: 1 -> 2")
    assert not entry.meets("cdc/record/position.py", "A.f: 1 -> 3")
    assert not entry.meets("cdc/record/progress.py", "A.f: 1 -> 2")
