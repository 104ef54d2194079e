"""In which order test files go out to the workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
_LONGEST = ("e2e",)
_LONG = (
    "capture/test_restored.py", "cli/test_changed_tables.py", "cli/test_past_joins.py", "cli/test_rights.py",
    "cli/test_streams.py", "cli/test_view_commands.py", "cli/test_view_rebuild.py", "snapshot/test_kills.py",
)  # fmt: skip
"""Files of ``integration`` that take one to four minutes each: begun among the last, one would be waited for alone."""
_INTEGRATION = ("integration",)
_LONG_FILES = frozenset(_TESTS / "integration" / name for name in _LONG)
_BUSY = (("integration", "spark"), ("integration", "debezium"), ("golden",), ("faults",))
"""Folders whose tests keep processors busy; those of the other integration tests wait most of the time. A slow run has
each of the first two on one worker, for a quarter of an hour and for ten minutes."""


def in_turn(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The longest tests first, so that none is left, and then busy ones, each file with one of waiting ones in turn, so
    that workers do not want the processors all at once; then what is left of the waiting ones among the rest, which
    needs no server, and the end of the rest alone: short files, so that the workers end together."""
    files = _files(items)
    longest = [tests for tests in files.values() if _in(tests, _LONGEST) or tests[0].path in _LONG_FILES]
    busy = longest + [tests for place in _BUSY for tests in files.values() if _in(tests, place)]
    waiting = [tests for tests in files.values() if _in(tests, _INTEGRATION) and tests not in busy]
    rest = [tests for tests in files.values() if tests not in (*busy, *waiting)]
    turns = itertools.chain.from_iterable(itertools.zip_longest(busy, waiting[: len(busy)], fillvalue=()))
    last = _spread(waiting[len(busy) :], rest)
    return [item for tests in (*turns, *last) for item in tests]


def _files(items: Sequence[pytest.Item]) -> dict[Path, list[pytest.Item]]:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    return files


def _spread(few: Sequence[list[pytest.Item]], many: Sequence[list[pytest.Item]]) -> Iterator[list[pytest.Item]]:
    """A file of the few, then a share of the many; as large a share at the end as three of the few would get."""
    share = len(many) // (len(few) + 3)
    for number, tests in enumerate(few):
        yield tests
        yield from many[number * share : (number + 1) * share]
    yield from many[len(few) * share :]


def _in(tests: Sequence[pytest.Item], place: tuple[str, ...]) -> bool:
    return folders(tests[0])[: len(place)] == place


def folders(item: pytest.Item) -> tuple[str, ...]:
    """Those between ``tests`` and a test's file."""
    return item.path.relative_to(_TESTS).parts[:-1] if item.path.is_relative_to(_TESTS) else ()
