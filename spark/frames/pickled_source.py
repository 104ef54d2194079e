"""Objects of a data source on their way to executors, what they keep there, and how their errors are told."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from cdc.process.errors import CdcError
from cdc.wire.records import ReaderOpener, RecordReader

# How our objects travel to executors: an executor that lacks our packages says so in one sentence.
#
# Spark sends a data source and its reader pickled, by the names of their modules. Without those the worker would fail
# with a bare ModuleNotFoundError. So they travel inside a function that is sent whole, which looks for the modules
# first.


def _unpacker() -> Callable[[bytes], Any]:
    # A function within a function has no name to be found by, so it is pickled whole.
    def unpack(payload: bytes) -> Any:
        import pickle  # noqa: PLC0415
        import sys  # noqa: PLC0415

        try:
            return pickle.loads(payload)
        except ModuleNotFoundError as missing:
            raise RuntimeError(
                f"this worker's Python ({sys.executable}) lacks the module {missing.name}, which reading headrace "
                "needs. Hint: install headrace[spark] on every executor, or ship it and call "
                "register(session): spark-submit --py-files "
                "headrace.zip, beside pyarrow, orjson, tenacity and confluent-kafka; PYSPARK_PYTHON names the Python"
            ) from None

    return unpack


class PickledByValue:
    """A class whose objects are pickled so. Their ``__dict__`` travels, but for what begins with ``live_``."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _unpacker(), (pickle.dumps(_Restored(type(self), _travelling(self.__dict__))),)


def _travelling(state: dict[str, Any]) -> dict[str, Any]:
    return {name: None if name.startswith("live_") else value for name, value in state.items()}


class _Restored:
    """Pickles as the object itself."""

    def __init__(self, kind: type, state: dict[str, Any]) -> None:
        self._kind = kind
        self._state = state

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _restored, (self._kind, self._state)


def _restored(kind: type, state: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    made.__dict__.update(state)
    return made


@lru_cache(maxsize=2)
def kept_reader(reading: ReaderOpener) -> RecordReader:
    """A reader, kept in this worker process from task to task."""
    return reading.open()


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
