"""Which partitions the stream has brought that no look at the catalog has compared yet (H148).

A look that finds a partition gone has its table read again. It has to know that the partition was there. The changes
may be acknowledged before the next look, and capture may die in between. So a partition that is new is noted in the
state topic before its changes are written, until a look has compared it.
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
        """The stream is about to bring changes of these. Raises LogError."""
        with self._lock:
            seen = {**self._new.get(table, {}), **links}
            known = self._compared.get(table, {}).items() | self._noted.get(table, {}).items()
            if links.items() - known:
                self._note(table, seen)
                crash_point("partition_noted")
            self._new = {**self._new, table: seen}

    def settle(self, compared: Mapping[str, Links]) -> None:
        """A look has compared these, and the brokers hold what it found. Raises LogError."""
        with self._lock:
            for table, links in compared.items():
                left = dict(self._new.get(table, {}).items() - links.items())
                if table in self._noted:
                    self._note(table, left)
                self._compared[table] = {**self._compared.get(table, {}), **links}
                others = {name: found for name, found in self._new.items() if name != table}
                self._new = {**others, table: left} if left else others

    def _note(self, table: str, links: Links) -> None:
        document = PartitionsState(table=table, links=dict(links))
        self._state.write([(document.key(), document.to_json() if links else None)])
        if links:
            self._noted[table] = links
        else:
            self._noted.pop(table, None)
