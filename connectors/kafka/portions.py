"""How much is asked of a cluster at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def rounds(items: Iterable[T], most: int, weight: Callable[[T], int] = lambda _: 1) -> Iterator[list[T]]:
    """The items in order, in lists that weigh at most so much each. An item that weighs more by itself stands alone.

    >>> [*rounds("abcde", 2)]
    [['a', 'b'], ['c', 'd'], ['e']]
    >>> [*rounds([1, 2, 9, 3], 4, int)]
    [[1, 2], [9], [3]]
    """
    taken: list[T] = []
    weighs = 0
    for item in items:
        if taken and weighs + weight(item) > most:
            yield taken
            taken, weighs = [], 0
        taken.append(item)
        weighs += weight(item)
    if taken:
        yield taken
