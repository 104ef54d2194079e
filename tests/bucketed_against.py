"""A view kept in Delta tables beside Postgres, its tasks carried out in this process: :mod:`tests.views_against`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from cdc.clock import SYSTEM_CLOCK
from cdc.views.fences import BEFORE_ALL, Fence
from cdc.views.lookups import Row
from cdc.views.refused import NotComputable
from cdc.views.view_records import key_row
from spark.views.bucket_files import DOCUMENTS, PENDING, PUBLISHED
from spark.views.cut_steps import sorted_changes
from spark.views.delta_tables import DeltaTables
from spark.views.document_steps import MakeDocuments
from spark.views.exchange import MemoryExchange
from spark.views.staged_documents import staged_records
from spark.views.view_batches import STATE_TABLES, CutBatch, ViewBatches
from spark.views.view_parts import Files, ShippedView
from spark.views.walk_steps import key_of
from tests.views_against import Beside


class BucketBeside(Beside):
    """``step`` brings tables of Delta below ``folder`` to what the database holds now."""

    def __init__(self, dsn: str, sql: str, folder: Path, buckets: int = 3) -> None:
        super().__init__(dsn, sql)
        used = [shape.to_json().decode() for table, shape in self.shapes.items() if table in self.plan.relations]
        self._shipped = ShippedView(sql, tuple(used), ("public",), str(folder), buckets)
        forms = [form.entries for form in self._shipped.parts().forms.values()]
        self._tables = DeltaTables(folder, [*forms, *STATE_TABLES, DOCUMENTS], SYSTEM_CLOCK)
        self._exchange = MemoryExchange()
        self._batches = ViewBatches(self._shipped, self._exchange)
        self._turn = 0
        self._parked: frozenset[str] = frozenset()

    def step(self) -> set[Row]:
        """See the class. Returns the keys of what was made."""
        self._turn += 1
        fence, before = Fence(1, self._turn * 8), self._files()
        changes = [change for table in self._seen for change in self._changes(table)]
        flow = self._exchange.begin(list(sorted_changes(self._shipped.parts(), changes)))
        batch = CutBatch(turn=self._turn, fence=fence, below=BEFORE_ALL, floors={}, whole=False)
        flows, applied = self._batches.apply(flow, batch, before, ())
        self._tables.commit(applied.changes)
        walked = self._batches.keys(flows, self._turn, before, self._files())
        self._tables.commit(walked.changes)
        make = MakeDocuments(
            shipped=self._shipped, turn=self._turn, shares=2, view="v", topic="t", partitions=2, name="t",
            database="d", largest=10**9, above=fence.floor(), now_ns=0, parked=self._parked,
        )  # fmt: skip
        staged = self._batches.stage(self._files(), make, 10, whole=False)
        self._tables.commit([one for one in staged.changes if one.table == DOCUMENTS.table], [DOCUMENTS.table])
        self._tables.commit([one for one in staged.changes if one.table == PUBLISHED.table], [PENDING.table])
        self._parked = frozenset(name for name, _ in staged.all("parked"))
        return self._take(staged.all("parked"))

    def _take(self, parked: Iterable[list[str]]) -> set[Row]:
        found: dict[Row, str | NotComputable | None] = {}
        version = self._tables.versions()[DOCUMENTS.table]
        for files in self._tables.files(DOCUMENTS.table, version).values():
            for record in staged_records([self._tables.path(DOCUMENTS.table, file) for file in files], "t"):
                value = record.value or b"null"
                key = key_row(self.plan, record.key)
                after = (orjson.loads(value) or {}).get("after")
                found[key] = None if after is None else value[value.index(b'"after":') + 8 :].decode()
        for key, text in found.items():
            if text is None:
                self.published.pop(key, None)
            else:
                self.published[key] = _row_of(str(text))
        for name, reason in parked:
            self.published[key_of(name)] = NotComputable(reason)
        return {*found}

    def _files(self) -> Files:
        return {name: self._tables.files(name, version) for name, version in self._tables.versions().items()}

    def files(self) -> Mapping[str, int]:
        """How many files each table has now."""
        return {name: sum(map(len, found.values())) for name, found in self._files().items()}


def _row_of(text: str) -> str:
    """The row at the beginning of a text, digit for digit."""
    depth, quoted, escaped = 0, False, False
    for place, letter in enumerate(text):
        if quoted:
            quoted, escaped = escaped or letter != '"', letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        else:
            depth += (letter == "{") - (letter == "}")
            if not depth:
                return text[: place + 1]
    raise AssertionError("no row")
