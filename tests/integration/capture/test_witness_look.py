"""What a note of WAL is of: the session's own server, and its own timeline (H201, H202)."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from cdc.settings import SourceSettings
from cdc.state import SlotState
from cdc.testing.topic import MemoryCompactedTopic
from cdc.wal_witness import WalWitness
from connectors.postgres.catalog_facts import read_server
from connectors.postgres.connections import connect
from connectors.postgres.lineage import WITNESS_BYTES, is_filling, started
from connectors.postgres.witnessed import ReadServer
from connectors.session.witness_look import WitnessLook
from tests.unit.cdc.checks.test_postgres import KNOWN


@pytest.fixture
def source(database: str) -> SourceSettings:
    return SourceSettings(dsn=database, tables=["public.*"])


def noted(source: SourceSettings, *, history: list[list[int]] | None = None, since: str = "") -> WalWitness | None:
    """What one look notes at the end of the WAL."""
    with closing(connect(source)) as session:
        server, start = read_server(session), started(session)
        session.execute("select pg_logical_emit_message(true, 'cdc', repeat('x', 100))")
        [[end]] = session.execute("select (pg_current_wal_flush_lsn() - '0/0')::int8").fetchall()
    slot: SlotState = replace(
        KNOWN, system_identifier=server.system_identifier, timeline=server.timeline, history=history
    )
    state = MemoryCompactedTopic()
    WitnessLook(source, ReadServer(slot, since or start), state, lambda: int(end), print).look()
    found = WalWitness.find(state.read())
    assert found is None or end - WITNESS_BYTES >= found.lsn > 0
    return found


def test_h202_only_the_server_that_is_read_is_noted(source: SourceSettings) -> None:
    found = noted(source)
    assert found is not None
    assert not is_filling(found.wal)
    assert noted(source, since="2000-01-01 00:00:00+00") is None


def test_h202_h192_nothing_below_a_promotion_is_noted(source: SourceSettings) -> None:
    """Another standby that was promoted at the same LSN has the same there: it would be taken for this one."""
    found = noted(source)
    assert found is not None
    assert noted(source, history=[[1, found.lsn]]) is not None
    assert noted(source, history=[[1, found.lsn + 16 * 1024**2]]) is None


def test_h201_zeros_at_the_end_of_a_segment_are_not_noted(source: SourceSettings) -> None:
    with closing(connect(source)) as session:
        server, start = read_server(session), started(session)
        session.execute("select pg_logical_emit_message(true, 'cdc', 'x')")
        session.execute("select pg_switch_wal()")
        [[at, size]] = session.execute(
            "select (pg_current_wal_insert_lsn() - '0/0')::int8, setting::int8 from pg_settings"
            " where name = 'wal_segment_size'"
        ).fetchall()
    end = at // size * size
    slot = replace(KNOWN, system_identifier=server.system_identifier, timeline=server.timeline)
    state = MemoryCompactedTopic()
    WitnessLook(source, ReadServer(slot, start), state, lambda: end, print).look()
    found = WalWitness.find(state.read())
    assert found is not None
    assert end - size <= found.lsn < end - WITNESS_BYTES
    assert not is_filling(found.wal)
    assert not found.wal.endswith("00")
