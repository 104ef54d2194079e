"""The partitions that the stream has brought and that no look at the catalog has compared yet.

A look at the catalog that misses a partition has its table read again, if it knows that the partition existed. Its
changes may be acknowledged before the next look, and capture may be killed in between. So capture notes a new
partition in the state topic before it writes changes of it, until a look has compared it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from cdc.crash import crash_point, declare
from cdc.ports import CompactedTopic
from cdc.state import FormState, PartitionsState, SnapshotTableState, find_all

declare("partition_noted")

Links = Mapping[str, int]
"""oid of a partition -> the transaction that attached it."""


class PartitionNotes:
    """By table. Any thread. ``documents``: the state topic's records."""

    def __init__(self, state: CompactedTopic, documents: Mapping[bytes, bytes]) -> None:
        self._state = state
        self._lock = threading.Lock()
        """Taken for moments."""
        self._writing = threading.Lock()
        """Taken while a broker is waited for: notes stand in the topic in the order of the facts that they note."""
        noted = {one.table: one.links for one in find_all(documents, PartitionsState)}
        self._new: Mapping[str, Links] = noted
        self._noted: dict[str, Links] = dict(noted)
        """What the state topic has."""
        plans = {plan.table: plan.links for plan in find_all(documents, SnapshotTableState)}
        forms = {form.table: form.links for form in find_all(documents, FormState)}
        self._compared: dict[str, Links] = {**plans, **forms}

    @property
    def new(self) -> Mapping[str, Links]:
        """Those that no look has compared, by table. The mapping is never changed: ask again for later ones."""
        return self._new

    def saw(self, table: str, links: Links) -> None:
        """The stream is about to bring changes of these. Raises LogError. A known partition waits for no broker."""
        with self._lock:
            if not self._is_news(table, links):
                self._new = {**self._new, table: {**self._new.get(table, {}), **links}}
                return
        with self._writing:
            with self._lock:
                seen = {**self._new.get(table, {}), **links}
                news = self._is_news(table, links)
            if news:
                self._note(table, seen)
                crash_point("partition_noted")
            with self._lock:
                self._new = {**self._new, table: {**self._new.get(table, {}), **links}}

    def settle(self, compared: Mapping[str, Links]) -> None:
        """Forget the notes of these. A look has compared them, and its findings are stored. Raises LogError."""
        with self._writing:
            for table, links in compared.items():
                with self._lock:
                    left, noted = self._without(table, links), table in self._noted
                if noted:
                    self._note(table, left)
                with self._lock:
                    self._compared[table] = {**self._compared.get(table, {}), **links}
                    left = self._without(table, links)
                    others = {name: found for name, found in self._new.items() if name != table}
                    self._new = {**others, table: left} if left else others

    def _is_news(self, table: str, links: Links) -> bool:
        """Whether neither a look nor a note has all of these. A note that is being removed counts: what it had is in
        what the look found."""
        known = self._compared.get(table, {}).items() | self._noted.get(table, {}).items()
        return bool(links.items() - known)

    def _without(self, table: str, links: Links) -> dict[str, int]:
        return dict(self._new.get(table, {}).items() - links.items())

    def _note(self, table: str, links: Links) -> None:
        document = PartitionsState(table=table, links=dict(links))
        self._state.write([(document.key(), document.to_json() if links else None)])
        with self._lock:
            if links:
                self._noted[table] = links
            else:
                self._noted.pop(table, None)
