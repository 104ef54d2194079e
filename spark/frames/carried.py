"""How our objects travel to executors: an executor that lacks our packages says so in one sentence.

Spark sends a data source and its reader pickled, by the names of their modules. Without those the worker would fail
with a bare ModuleNotFoundError. So they travel inside a function that is sent whole, which looks for the modules first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any


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


class Carried:
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
