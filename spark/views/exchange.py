"""The port between the steps of a view's batch and those who carry them out: records go to the task of their target.

:class:`MemoryExchange` carries them out in this process, for those who have no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from cdc.foreign import quoted
from cdc.views.state_faults import StateAway

CONTROL, CHANGES, ASIDE, PATCHES, OLD, NEW, KEYS, ROWS, ASKS, FAULT = range(10)
"""What a parcel holds. CONTROL is for the driver. ASIDE: changes that the log does not hold, which wait. FAULT: an
error that a task has raised, which goes through all that follows until the driver collects it."""


class Parcel(NamedTuple):
    """A record between tasks. All parcels of one ``target`` come to one task. ``payload``: JSON, or a pickled error."""

    target: int
    tag: int
    payload: bytes


Step = Callable[[Iterator[Parcel]], Iterator[Parcel]]
"""A task's work on all parcels that came to it, of several targets. It can be pickled."""


class Exchange(Protocol):
    """Carries steps out. A flow is what it hands out: parcels that lie somewhere."""

    def expect(self, records: int) -> None:
        """About how many records or documents the next flows have to do with, until :meth:`forget`."""
        ...

    def begin(self, parcels: Sequence[Parcel]) -> Any:
        """A flow of parcels of the driver."""
        ...

    def through(self, flow: Any, step: Step, tags: Sequence[int]) -> Any:
        """A flow of what a step makes of the parcels with these tags. May raise as :meth:`collect`.

        An error that a step has raised goes on with it: a task that is carried out once more may fail then (H242).
        """
        ...

    def joined(self, flows: Sequence[Any], tags: Sequence[int]) -> Any:
        """The parcels with these tags of several flows as one."""
        ...

    def collect(self, flow: Any) -> list[Parcel]:
        """A flow's parcels for the driver. Raises what a step has raised, of this flow or of one that it is made of."""
        ...

    def forget(self) -> None:
        """All flows so far are of no use any more."""
        ...


class MemoryExchange:
    """Implements :class:`Exchange` in this process. ``tasks``: over how many tasks targets are spread."""

    def __init__(self, tasks: int = 3) -> None:
        self._tasks = tasks

    def expect(self, records: int) -> None:
        """However many: they are all in memory."""

    def begin(self, parcels: Sequence[Parcel]) -> list[Parcel]:
        """See the protocol."""
        return list(parcels)

    def through(self, flow: list[Parcel], step: Step, tags: Sequence[int]) -> list[Parcel]:
        """See the protocol."""
        found: list[Parcel] = []
        for task in range(self._tasks):
            own = [one for one in flow if one.tag in tags and one.target % self._tasks == task]
            if own:
                found += guarded_step(step, iter(own))
        return found

    def joined(self, flows: Sequence[list[Parcel]], tags: Sequence[int]) -> list[Parcel]:
        """See the protocol."""
        return [one for flow in flows for one in flow if one.tag in tags]

    def collect(self, flow: list[Parcel]) -> list[Parcel]:
        """See the protocol."""
        return [one for one in flow if one.tag == CONTROL]

    def forget(self) -> None:
        """Nothing lies anywhere."""


def guarded_step(step: Step, parcels: Iterator[Parcel]) -> Iterator[Parcel]:
    """A task's work. StateAway in place of what its disk, or Arrow, raises (V17)."""
    try:
        yield from step(parcels)
    except (OSError, pa.ArrowException) as failure:
        raise StateAway(
            f"an executor cannot use the state of the view: {quoted(failure)}",
            hint="see that its disk has room, and that every executor sees the folder. Where a file of it is gone, "
            "cdc view rebuild makes it anew",
        ) from None


def gathered(parcels: Iterable[Parcel]) -> dict[int, list[Parcel]]:
    """Parcels by target."""
    found: dict[int, list[Parcel]] = {}
    for one in parcels:
        found.setdefault(one.target, []).append(one)
    return found
