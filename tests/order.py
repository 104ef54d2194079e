"""In which order test files go out to the workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent
_LONGEST = ("e2e",)
_INTEGRATION = ("integration",)
_BUSY = (("integration", "spark"), ("golden",), ("integration", "debezium"), ("faults",))
"""Folders whose tests keep processors busy; those of the other integration tests wait most of the time."""


def in_turn(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The longest tests first, so that none is left; then a file of busy ones and one of waiting ones in turn, so that
    workers do not want the processors all at once; then what is left of the waiting ones among the rest, which needs no
    server, and the end of the rest alone: short files, so that the workers end together."""
    files = _files(items)
    longest = [tests for tests in files.values() if _in(tests, _LONGEST)]
    busy = [tests for place in _BUSY for tests in files.values() if _in(tests, place)]
    waiting = [tests for tests in files.values() if _in(tests, _INTEGRATION) and tests not in busy]
    rest = [tests for tests in files.values() if tests not in (*longest, *busy, *waiting)]
    turns = itertools.chain.from_iterable(itertools.zip_longest(busy, waiting[: len(busy)], fillvalue=()))
    last = _spread(waiting[len(busy) :], rest)
    return [item for tests in (*longest, *turns, *last) for item in tests]


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
