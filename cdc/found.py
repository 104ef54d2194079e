"""The result of a look at a server: a value, nothing, or no answer.

No answer is not absence. A look that failed says nothing about what it looked for, so no judgement and no advice may
rest on it: ``Found`` makes the type checker ask for the third case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from cdc.errors import CdcError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody answered. ``because``: the error of the look, with its hint and exit code."""

    because: CdcError

    def __str__(self) -> str:
        return self.because.message


Found: TypeAlias = T | Unknown | None
"""The value. None where the server answered that there is none. :class:`Unknown` where it did not answer."""


def look(asked: Callable[[], T]) -> T | Unknown:
    """Return the result of ``asked``, or Unknown with the CdcError that it raised."""
    try:
        return asked()
    except CdcError as error:
        return Unknown(error)


def known(found: Found[T]) -> T | None:
    """The value where there is one. None for absent and not known alike: only where its absence is not stated."""
    return None if isinstance(found, Unknown) else found
