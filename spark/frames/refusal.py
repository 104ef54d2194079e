"""A failure as Spark shows it: one text, because of an exception in a Python worker Spark keeps the text alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.errors import CdcError


class FrameError(Exception):
    """The error that stops a read, with its hint: the last line of what Spark shows."""


def told(error: CdcError) -> FrameError:
    """The same failure for Spark.

    >>> told(CdcError("there is no table public.x", hint="it has public.y"))
    FrameError('there is no table public.x. Hint: it has public.y')
    """
    return FrameError(f"{error.message}. Hint: {error.hint}" if error.hint else error.message)


@contextmanager
def telling() -> Iterator[None]:
    """Raise what the body raises of ours as FrameError, without the traceback below it."""
    try:
        yield
    except CdcError as error:
        raise told(error) from None
