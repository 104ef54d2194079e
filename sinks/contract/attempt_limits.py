"""How often a store is tried that does not answer, by what its answer is for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_most = ContextVar("most", default=1_000)
_look = ContextVar("look", default=False)
_OF_A_LOOK = 3


def tries(usual: int) -> int:
    """How often to try, on this thread and now, what is tried ``usual`` times elsewhere.

    >>> with unrepeated():
    ...     tries(10)
    1
    >>> tries(10)
    10
    """
    return min(usual, _most.get())


@contextmanager
def looking() -> Iterator[None]:
    """Within, on this thread, a store that does not answer is given up within a second: somebody waits for the word."""
    before = _look.set(True)
    try:
        with _at_most(_OF_A_LOOK):
            yield
    finally:
        _look.reset(before)


def is_look() -> bool:
    """Whether a store is looked at, on this thread and now.

    >>> with looking():
    ...     is_look()
    True
    >>> is_look()
    False
    """
    return _look.get()


@contextmanager
def unrepeated() -> Iterator[None]:
    """Within, on this thread, a call that fails is not repeated: what was looked up for it may not be so any more when
    the store answers again."""
    with _at_most(1):
        yield


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    before = _most.set(count)
    try:
        yield
    finally:
        _most.reset(before)
