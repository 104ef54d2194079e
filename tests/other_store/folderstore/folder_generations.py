"""Generations of a folder: a folder per generation; a note above them says which one is in use."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cdc.process.clock import Clock
from cdc.record.schema import TableSchema
from sinks.contract.generations import GENERATION, Generations, number_in_use
from sinks.contract.sink_spec import SinkSpec

from .folder_store import FolderNotes, root_of


def open_generations(spec: SinkSpec, clock: Clock) -> Generations:
    """What the kind's ``generations`` name."""
    return _FolderGenerations(root_of(spec))


class _FolderGenerations:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._notes = FolderNotes(lambda: root)

    def in_use(self) -> int:
        return number_in_use(self._notes)

    def keep(self, number: int, shapes: Sequence[TableSchema]) -> None:
        """What is in use stays where it is."""

    def switch(self, number: int, shapes: Sequence[TableSchema]) -> None:
        self._notes.write(GENERATION, b"%d" % number)

    def discard(self, number: int, shapes: Sequence[TableSchema]) -> None:
        shutil.rmtree(self._root / str(number), ignore_errors=True)

    def close(self) -> None:
        """Nothing is open."""
