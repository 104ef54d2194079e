"""Tries the mutants of modules: ``python -m tests.faults.generated.judge WORKERS FILE... -- TEST_FILE...``.

Prints a JSON line for each. Everything is imported and collected once, and each test is run once to see which lines of
the modules it reaches. A mutant is a fork of that: the code of the changed function is put into every function object
that has it, and the tests that reach its line are run, the likeliest first, until one fails. So is a changed constant
that only functions use. Any other change outside of functions takes effect when the module is imported, so such a fork
imports the project anew.
"""

from __future__ import annotations

import ast
import gc
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Literal

import pytest
from _pytest.runner import runtestprotocol

from tests.faults.generated.changes import Change, changes
from tests.faults.generated.constants import replaced
from tests.faults.generated.forks import in_child, shared

ROOT = Path(__file__).parents[3]
PACKAGES = ("cdc", "connectors", "snapshot", "sinks", "spark", "tests")
SERVERS = {"stack", "run_cdc", "spawn", "fork_server"}
"""Fixtures of servers and processes. Tests that take them are too slow to be run thousands of times."""
TEST_FLAGS = [
    "-p", "no:randomly", "-p", "no:cacheprovider", "-q", "-p", "no:xdist", "-s",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
]  # fmt: skip
_LONGEST_S = 4.0
"""A test that takes longer is left out: it would be run for each change of what it reaches."""
_ALL_S = 5.0
"""A change is tried by as many tests as take this long together, the shortest first."""
_ALL_ANEW_S = 2.0
"""The same where the project is imported anew."""
_ENDLESS_S = 2.0


Functions = dict[tuple[str, int], list[FunctionType]]


@dataclass(slots=True)
class Reached:
    """The lines of each file that a test reached, and its processor seconds."""

    passed: bool
    seconds: float
    lines: Mapping[str, frozenset[int]]


class _Brief:
    """Whether a test passed, and nothing else: to show a failure takes longer than most tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
        found: Literal["passed", "failed", "skipped"] = "passed"
        if call.excinfo is not None:
            found = "skipped" if call.excinfo.errisinstance(pytest.skip.Exception) else "failed"
        assert call.when != "collect"
        return pytest.TestReport(item.nodeid, item.location, {}, found, None, call.when)


@dataclass(eq=False)
class Judge(_Brief):
    """A plugin of pytest that tries mutants in place of running the tests.

    ``workers``: how many of them at once.
    """

    files: Sequence[Path]
    out: Callable[[Mapping[str, object]], None]
    workers: int = 1
    items: list[pytest.Item] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)
    kills: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How many changes of a place each test has noticed."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Generated cases are the same for each mutant, and a failing one is not made smaller."""
        # Imported here: pytest rewrites the assertions of what it loads first.
        from hypothesis import HealthCheck, Phase  # noqa: PLC0415
        from hypothesis import settings as hypothesis_settings  # noqa: PLC0415

        hypothesis_settings.register_profile(
            "mutants", parent=hypothesis_settings.get_profile("headrace"), derandomize=True, database=None,
            phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        hypothesis_settings.load_profile("mutants")

    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        if fixturedef.argname in SERVERS:
            pytest.skip("takes a server")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.collect()
        able = [item for item in session.items if _in_this_process(item)]
        for _, group in itertools.groupby(able, key=lambda item: item.path):
            self._walk(list(group))
        functions = _functions({str(file) for file in self.files})
        gc.freeze()
        if shared(self.workers, lambda share: self._try_share(share, functions)):
            for file in self.files:
                self.out({"done": str(file.relative_to(ROOT))})
        return True

    def _try_share(self, share: int, functions: Mapping[str, Functions]) -> None:
        """The changes whose number says that they are of this share."""
        for file in self.files:
            self._try_all(file, functions, share)

    def _walk(self, items: list[pytest.Item]) -> None:
        """Run each test of a file once and see which lines of the modules it reaches."""
        files = frozenset(map(str, self.files))
        found = in_child(lambda: [_traced(item, following, files) for item, following in _pairs(items)])
        if found is None:
            self.out({"left_out": str(items[0].path.relative_to(ROOT))})
            return
        self.items += items
        self.reached += found

    def _try_all(self, file: Path, functions: Mapping[str, Functions], share: int) -> None:
        tree = ast.parse(file.read_bytes())
        sound = compile(tree, str(file), "exec", dont_inherit=True)
        for number, change in enumerate(changes(tree)):
            if number % self.workers != share:
                continue
            began = time.monotonic()
            try:
                broken = compile(tree, str(file), "exec", dont_inherit=True)
            except SyntaxError:
                continue
            if _same(sound, broken):
                continue
            numbers = self._tests(change, str(file))
            put = _put(file, tree, change, sound, broken, functions[str(file)])
            verdict, by = self._judged(file, change, numbers, put, broken)
            self.out({
                "file": str(file.relative_to(ROOT)), "name": change.name, "line": change.line,
                "verdict": verdict, "by": by, "seconds": round(time.monotonic() - began, 2),
            })  # fmt: skip

    def _judged(
        self,
        file: Path,
        change: Change,
        numbers: Sequence[int],
        put: Callable[[], None] | None,
        broken: CodeType,
    ) -> tuple[str, str]:
        if not numbers:
            return "unreached", ""
        items = [self.items[number] for number in numbers]
        limits = [_ENDLESS_S + 5 * self.reached[number].seconds for number in numbers]
        if put is None:
            failed = in_child(lambda: _imported_anew(file, broken, items), int(sum(limits)) + 20)
        else:
            failed = in_child(lambda: _first_failure(items, limits, put), int(sum(limits)))
        if failed is None:
            return "timeout", ""
        if failed < 0:
            return "survives", ""
        if failed < len(numbers):
            self.kills[change.place, numbers[failed]] += 1
            return "killed", self.items[numbers[failed]].nodeid
        return "killed", "import"

    def _tests(self, change: Change, file: str) -> list[int]:
        """Numbers of the tests to run: those that noticed most changes of this place first, then the shortest."""
        able = [
            number
            for number, one in enumerate(self.reached)
            if one.passed and one.seconds < _LONGEST_S and _reaches(one.lines.get(file), change)
        ]
        able.sort(key=lambda number: (-self.kills[change.place, number], self.reached[number].seconds))
        total, kept = 0.0, []
        for number in able:
            total += self.reached[number].seconds
            if total > (_ALL_S if change.function else _ALL_ANEW_S):
                break
            kept.append(number)
        return kept


def _reaches(lines: frozenset[int] | None, change: Change) -> bool:
    """A change outside of functions may show wherever the module is used."""
    return bool(lines) and (not change.function or change.line in (lines or ()))


def _in_this_process(item: pytest.Item) -> bool:
    """Of the stores, the one in memory is quick enough to be asked thousands of times."""
    callspec = getattr(item, "callspec", None)
    return callspec is None or callspec.params.get("store", "memory") == "memory"


def _pairs(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _traced(item: pytest.Item, following: pytest.Item | None, files: frozenset[str]) -> Reached:
    lines: dict[str, set[int]] = {}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        lines[frame.f_code.co_filename].add(frame.f_lineno)
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in files:
            return None
        lines.setdefault(file, set()).add(frame.f_lineno)
        return line

    began = time.process_time()
    sys.settrace(call)
    threading.settrace(call)
    try:
        passed = _passes(item, following)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    seconds = time.process_time() - began
    return Reached(passed, seconds, {file: frozenset(found) for file, found in lines.items()})


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    return all(report.passed for report in runtestprotocol(item, log=False, nextitem=following))


def _put(
    file: Path, tree: ast.Module, change: Change, sound: CodeType, broken: CodeType, functions: Functions
) -> Callable[[], None] | None:
    """What puts a change in its place. None where the project is to be imported anew."""
    if not change.function:
        return replaced(tree, change.line, _module(file), PACKAGES)
    swapped = _swapped(sound, broken, functions)
    if swapped is None:
        return None

    def put() -> None:
        for function, code in swapped.items():
            function.__code__ = code

    return put


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def _first_failure(items: Sequence[pytest.Item], limits: Sequence[float], put: Callable[[], None]) -> int:
    """The number of the first test that fails with the change in its place; -1 when all pass, and also the first where
    it cannot be put there. One that takes more processor time than its limit ends the process."""
    try:
        put()
    except Exception:
        return 0
    for number, (item, following) in enumerate(_pairs(items)):
        signal.setitimer(signal.ITIMER_PROF, limits[number])
        if not _passes(item, following):
            return number
    return -1


def _imported_anew(file: Path, broken: CodeType, items: Sequence[pytest.Item]) -> int:
    """The same with the project imported anew, the module from ``broken``."""
    found = _Found()
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        # What runs here stays.
        if not name.startswith("tests.faults.generated"):
            del sys.modules[name]
    sys.meta_path.insert(0, _Broken(file, broken))
    ended = pytest.main([*TEST_FLAGS, "-x", *(item.nodeid for item in items)], plugins=[found])
    if ended == pytest.ExitCode.OK:
        return -1
    return found.number if ended == pytest.ExitCode.TESTS_FAILED else len(items)


class _Found(_Brief):
    """The number of the test that failed."""

    def __init__(self) -> None:
        self.number = -1
        self._seen: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid not in self._seen:
            self._seen.append(report.nodeid)
        self.number = len(self._seen) - 1


class _Broken(SourceFileLoader):
    """Imports one module from code that is given."""

    def __init__(self, file: Path, code: CodeType) -> None:
        super().__init__(_module(file), str(file))
        self._code = code

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType | None:
        return self._code


def _functions(files: set[str]) -> dict[str, Functions]:
    """Every function object of the files, by name and line."""
    found: dict[str, Functions] = {file: {} for file in files}
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename in files:
            code = one.__code__
            found[code.co_filename].setdefault((code.co_qualname, code.co_firstlineno), []).append(one)
    return found


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield (const.co_qualname, const.co_firstlineno), const
            yield from _codes(const)


def _swapped(sound: CodeType, broken: CodeType, functions: Functions) -> Mapping[FunctionType, CodeType] | None:
    """The functions whose code differs, with their new code; None where that cannot be put in."""
    old, new = list(_codes(sound)), list(_codes(broken))
    if Counter(key for key, _ in old) != Counter(key for key, _ in new):
        return None
    before, after = dict(old), dict(new)
    found: dict[FunctionType, CodeType] = {}
    for key, code in after.items():
        if code != before[key]:
            for function in functions.get(key, ()):
                if len(code.co_freevars) != len(function.__code__.co_freevars):
                    return None
                found[function] = code
    return found or None


def _same(sound: CodeType, broken: CodeType) -> bool:
    return sound == broken


def main(argv: Sequence[str]) -> int:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(line: Mapping[str, object]) -> None:
        print(json.dumps(line), file=out, flush=True)

    border = argv.index("--")
    judge = Judge([ROOT / file for file in argv[1:border]], say, int(argv[0]))
    return int(pytest.main([*TEST_FLAGS, *argv[border + 1 :]], plugins=[judge]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
