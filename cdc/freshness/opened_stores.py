"""Stores that are kept open between looks, and opened anew once readers see another generation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from cdc.freshness.rules import ReadsWatermarks


class OpenedStore(Protocol):
    """A store, opened."""

    @property
    def watermarks(self) -> ReadsWatermarks:
        """Where the store keeps its watermark."""

    def current(self) -> bool:
        """Whether what was opened is still what readers see."""

    def close(self) -> None:
        """End the connection to the store."""


class KeptStores:
    """Stores by the names of their sinks. Threads may ask for different ones at a time."""

    def __init__(self, open_store: Callable[[str], OpenedStore]) -> None:
        self._open_store = open_store
        self._stores: dict[str, OpenedStore] = {}

    def watermarks(self, sink: str) -> ReadsWatermarks:
        """Of the generation that readers see. Raises what opening the store raises."""
        if sink not in self._stores or not self._stores[sink].current():
            # Not yet, or another generation since it was rebuilt.
            store, former = self._open_store(sink), self._stores.get(sink)
            self._stores[sink] = store
            if former is not None:
                former.close()
        return self._stores[sink].watermarks

    def close(self) -> None:
        """Close every store that was opened."""
        with ExitStack() as exits:
            for store in self._stores.values():
                exits.callback(store.close)
            self._stores = {}
