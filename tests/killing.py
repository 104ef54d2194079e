"""Runs that are killed at each of their steps: before and behind every call of a port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Killed(BaseException):
    """Stands for a SIGKILL: no ``except Exception`` sees it."""


class Steps:
    """Counts the steps of a run, and ends it at the step ``at``."""

    def __init__(self, at: int | None = None) -> None:
        self.names: list[str] = []
        """What the run has done so far, a name for each step."""
        self._at = at
        self._killed = False

    def reach(self, name: str) -> None:
        """One step more. Raises Killed at the step asked for, and at each that an exit of the run still tries."""
        self.names.append(name)
        self._killed = self._killed or len(self.names) - 1 == self._at
        if self._killed:
            raise Killed(name)

    def over(self, name: str, port: object) -> Any:
        """The port, with a step before and behind each call of its methods."""
        return _Watched(name, port, self)


class _Watched:
    def __init__(self, name: str, port: object, steps: Steps) -> None:
        self._name, self._port, self._steps = name, port, steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not callable(found):
            return found
        where = f"{self._name}.{name}"

        def call(*arguments: Any, **named: Any) -> Any:
            self._steps.reach(f"before {where}")
            result = found(*arguments, **named)
            self._steps.reach(f"behind {where}")
            return result

        return call


def every_kill(run: Callable[[Steps], object]) -> Iterator[Steps]:
    """Steps that end a run at its first step, its second, and so on, up to its last one.

    ``run`` is called once, to count them.
    """
    counted = Steps()
    run(counted)
    for at in range(len(counted.names)):
        yield Steps(at)
