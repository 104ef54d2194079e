"""A table with masks that was set aside is followed again once the stream is past the last change of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from cdc.capture.table_masks import MaskNotes, masks_of
from cdc.process.clock import ManualClock
from cdc.record.tables_aside import CannotFollow
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.server.catalog_shapes import captured_schema, resolve_tables
from connectors.postgres.server.connections import Connection, connect
from connectors.session.aside_causes import Remedies
from connectors.session.asides import SetAside
from tests.memory_log import MemoryCompactedTopic

TABLE = TableName("public", "t")
EVERYTHING = 1 << 62
"""An LSN behind which nothing is."""


class Place:
    """A table that is set aside, and the looks at it."""

    def __init__(self, session: Connection, settings: Settings, rows: str) -> None:
        self.session = session
        session.execute(rows.encode())
        self.state = MemoryCompactedTopic()
        self.notes = MaskNotes(masks_of(settings), self.state)
        self.registry = SchemaRegistry(MemoryCompactedTopic(), notes=self.notes)
        (table,) = resolve_tables(session, settings)
        self.first = self.registry.register(captured_schema(session, settings, table.oid, topic="shop.t"))
        self.notes.note([str(TABLE)], self.registry.versions(), {})
        self.asides = SetAside(MemoryCompactedTopic(), {}, epoch=1, clock=ManualClock())
        self.asides.set_aside(TABLE, CannotFollow("it changed", tables=[TABLE]), 1, 0)
        self.remedies = Remedies(settings, self.asides, self.registry, lambda table: "shop.t")

    def look(self, since_lsn: int) -> bool:
        """Whether it may be followed again, once the log has all below ``since_lsn``."""
        self.remedies.look(self.session, {}, since_lsn)
        return bool(self.asides.remedied())

    @property
    def passed(self) -> int:
        return self.notes.passed(str(TABLE))


@pytest.fixture
def place(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("REMEDIES_MASK_KEY", "0123456789abcdef0123456789abcdef")
    settings = parse(
        {
            "name": "shop",
            "source": {"dsn": database, "tables": ["public.t"], "mask_key": "env:REMEDIES_MASK_KEY"},
            "log": {"bootstrap_servers": "127.0.0.1:1"},
            "tables": {"public.t": {"columns": {"mail": "hmac"}}},
        }
    )
    with closing(connect(settings.source, autocommit=True)) as session:
        yield Place(session, settings, "create table public.t (id int primary key, mail text, note text)")


def test_h284_the_stream_has_to_be_past_the_look(place: Place) -> None:
    assert not place.look(0), "nothing is known to be past"
    assert not place.look(0)
    assert place.look(EVERYTHING)
    assert place.passed == place.first.version == 1


def test_h284_another_change_begins_anew(place: Place) -> None:
    place.look(0)
    (before,) = place.session.execute("select (pg_current_wal_insert_lsn() - '0/0')::int8").fetchone() or (0,)
    place.session.execute("alter table public.t drop column note")
    assert not place.look(before), "of this shape nothing is past"
    assert not place.look(before)
    assert place.look(EVERYTHING)
    assert place.passed == 2
    found = place.registry.get(TABLE, 2)
    assert [column.name for column in found.columns] == ["id", "mail"]


def test_h285_a_masked_column_under_another_name_stays_aside(place: Place) -> None:
    place.session.execute("alter table public.t rename mail to address")
    assert not place.look(EVERYTHING) and not place.look(EVERYTHING)
    place.session.execute("alter table public.t rename address to mail")
    assert place.look(EVERYTHING)
