"""JSON of any depth, width and spelling is data in every store."""

from __future__ import annotations

import orjson
import pytest

from sinks.contract.batch import events_of
from tests.contract.stores import Store, live
from tests.contract.topics import Shapes, Topic, at, column, shape
from tests.hostile_documents import BINARY, EVERY
from tests.single_rows import canonical_row, plain_row

COLUMNS = (column("id", "int4", key=1), column("doc", "json"), column("more", "jsonb", array=True))
TABLE = shape(*COLUMNS, table="documents")


@pytest.mark.slow
def test_w6_every_document_comes_back_as_it_was(store: Store) -> None:
    sink, topic = store.open(), Topic(TABLE)
    rows = [
        {"id": n, "doc": text, "more": [text, None] if name in BINARY else []}
        for n, (name, text) in enumerate(EVERY.items())
    ]
    for n, row in enumerate(rows):
        topic.upsert(row, at(n))
    done = sink.sink.apply(events_of(topic.events), Shapes(TABLE))
    assert [refused.reason for refused in done.refused] == []
    found = live(sink, TABLE)
    wanted = {str(row["id"]): canonical_row(orjson.dumps(plain_row(row, TABLE)), TABLE) for row in rows}
    assert [name for n, name in enumerate(EVERY) if found.get(str(n)) != wanted[str(n)]] == []
    looked_up = {key: sink.reader.get(TABLE, key) for key in wanted}
    assert {key: canonical_row(row.row, TABLE) for key, row in looked_up.items() if row and row.row} == wanted
