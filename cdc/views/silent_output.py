"""The output of a runner that only builds: it says nothing, and knows of nothing that was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.position import Position
from cdc.views.answers import RunnerAnswer
from cdc.views.fences import Fence
from cdc.views.view_records import ViewRecord


class SilentOutput:
    """Implements :class:`cdc.views.view_ports.ViewOutput` for a generation that nobody is to see yet.

    Its runner's ``above`` is :data:`cdc.views.fences.NEVER`, so there is nothing to publish: RuntimeError where it
    tries.
    """

    def publish(self, records: Sequence[ViewRecord], claim: Fence | None) -> Mapping[int, int]:
        """RuntimeError."""
        raise RuntimeError("a generation that is only built has published")

    def behind(self, ends: Mapping[int, int]) -> tuple[list[bytes], Mapping[int, int]]:
        """No key, and no end."""
        return [], {}

    def newest(self) -> Position | None:
        """None."""
        return None

    def tell(self, held: Sequence[str]) -> None:
        """Nobody asks for a view that is not published. The runner's log says what holds it."""

    def claimed(self) -> Fence | None:
        """None."""
        return None

    def answer(self, answer: RunnerAnswer) -> None:
        """RuntimeError: it publishes nothing that was asked for."""
        raise RuntimeError("a generation that is only built has answered")

    def answered(self) -> str:
        """Nothing."""
        return ""
