from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cdc.process.errors import ConfigError, SlotError, UsageError
from cdc.record.server_facts import PublicationFacts, ServerFacts, SlotFacts
from cdc.record.state import SlotState, TopicsState
from cdc.settings.model import Settings, parse
from snapshot.first import first_snapshot
from snapshot.first.manifest import COMPLETE, Manifest
from snapshot.source.ports import NoReport
from tests.memory_log import MemoryCompactedTopic
from tests.unit.snapshot.first.test_manifest import INTENT, SLOT, begun
from tests.unit.snapshot.first.test_manifest import ORDERS as ORDERS_LOOK

SETTINGS = parse(
    {
        "name": "shop",
        "source": {"dsn": "host=127.0.0.1", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
    }
)
SERVER = ServerFacts(
    version=180004,
    version_text="18.4",
    database="shop",
    database_oid=5,
    role="cdc",
    granted_replication=True,
    in_recovery=False,
    encoding="UTF8",
    wal_level="logical",
    system_identifier="7",
    timeline=1,
    wal_lsn=1,
    slots_max=10,
    slots_used=0,
    senders_max=10,
    senders_used=0,
    max_slot_wal_keep_bytes=None,
    synchronous_standby_names="",
)
PUBLICATION = PublicationFacts(publication="cdc_shop", operations=frozenset(), via_root=True, tables=frozenset())
FOUND = SlotFacts(
    slot="cdc_shop",
    plugin="pgoutput",
    database="shop",
    active_pid=None,
    wal_status="reserved",
    restart_lsn=900,
    confirmed_flush_lsn=1000,
    retained_bytes=0,
    safe_wal_bytes=None,
    invalidation_reason=None,
)


@dataclass
class MemorySource:
    """:class:`snapshot.source.ports.Source`, as far as preconditions ask it."""

    server: ServerFacts = SERVER
    slot: SlotFacts | None = None
    publication: PublicationFacts | None = PUBLICATION
    required: list[int] = field(default_factory=list)

    def session(self, application_name: str, *, replication: bool = False, lock_timeout_s: float = 0) -> Any:
        raise NotImplementedError

    def tables(self, session: Any) -> Sequence[Any]:
        return []

    def shape(self, session: Any, table: Any) -> Any:
        raise NotImplementedError

    def require(self, session: Any, known: SlotState, position: int) -> None:
        self.required.append(position)

    def facts(self, session: Any) -> tuple[ServerFacts, SlotFacts | None, PublicationFacts | None]:
        return self.server, self.slot, self.publication


@dataclass
class MemoryEdges:
    source: MemorySource = field(default_factory=MemorySource)
    settings: Settings = SETTINGS
    log: Any = None
    lock: tuple[int, int] = (1, 2)


NO_SESSION: Any = None


def test_a_server_that_is_ready_passes() -> None:
    first_snapshot.require_server(MemoryEdges(), NO_SESSION)


def test_wal_level_says_how_to_change_it() -> None:
    edges = MemoryEdges(MemorySource(server=replace(SERVER, wal_level="replica")))
    with pytest.raises(ConfigError, match="wal_level is replica") as caught:
        first_snapshot.require_server(edges, NO_SESSION)
    assert "alter system set wal_level" in caught.value.hint


def test_h26_h55_a_standby_is_refused() -> None:
    edges = MemoryEdges(MemorySource(server=replace(SERVER, in_recovery=True)))
    with pytest.raises(ConfigError, match="standby"):
        first_snapshot.require_server(edges, NO_SESSION)


def test_h55_a_failover_slot_needs_standbys_that_keep_slots() -> None:
    wanted = SETTINGS.model_copy(update={"source": SETTINGS.source.model_copy(update={"failover": True})})
    first_snapshot.require_server(MemoryEdges(settings=wanted), NO_SESSION)
    older = MemorySource(server=replace(SERVER, version=160009, version_text="16.9"))
    with pytest.raises(ConfigError, match=r"PostgreSQL 17 or later, this is 16.9") as caught:
        first_snapshot.require_server(MemoryEdges(older, wanted), NO_SESSION)
    assert "false" in caught.value.hint
    first_snapshot.require_server(MemoryEdges(older), NO_SESSION)


def test_h52_the_publication_comes_before_the_slot() -> None:
    with pytest.raises(ConfigError, match="before the slot") as caught:
        first_snapshot.require_server(MemoryEdges(MemorySource(publication=None)), NO_SESSION)
    assert "cdc init" in caught.value.hint


def test_topics_that_were_not_made_or_hold_another_encoding() -> None:
    with pytest.raises(ConfigError, match="have not been made"):
        first_snapshot.require_topics(Manifest(), SETTINGS)
    made = TopicsState(cluster_id="c", encoding="debezium")
    with pytest.raises(ConfigError, match="debezium"):
        first_snapshot.require_topics(Manifest({made.key(): made.to_json()}), SETTINGS)
    fitting = replace(made, encoding="readable")
    assert first_snapshot.require_topics(Manifest({fitting.key(): fitting.to_json()}), SETTINGS) == fitting


def test_h4_an_unstreamed_slot_stands_at_its_beginning() -> None:
    manifest, _ = begun(ORDERS_LOOK)
    edges = MemoryEdges()
    first_snapshot.require_slot(edges, NO_SESSION, manifest, rows=True)
    manifest.cut(0, state=COMPLETE)
    first_snapshot.require_slot(edges, NO_SESSION, manifest, rows=True)
    assert edges.source.required == [SLOT.consistent_point, first_snapshot.MAX_LSN]


def test_rows_cannot_be_left_out_once_they_are_being_read() -> None:
    manifest, _ = begun(ORDERS_LOOK)
    with pytest.raises(UsageError):
        first_snapshot.require_slot(MemoryEdges(), NO_SESSION, manifest, rows=False)
    manifest.cut(0, state=COMPLETE)
    first_snapshot.require_slot(MemoryEdges(), NO_SESSION, manifest, rows=False)


def test_a_slot_is_ours_to_remove_only_with_an_intent_for_it() -> None:
    edges = MemoryEdges(MemorySource(slot=FOUND))
    with pytest.raises(SlotError, match="did not make it"):
        first_snapshot.require_no_slot(edges, NO_SESSION, Manifest(), NoReport())
    topic = MemoryCompactedTopic()
    topic.write(Manifest().begin(replace(INTENT, slot="another")))
    with pytest.raises(SlotError, match="did not make it"):
        first_snapshot.require_no_slot(edges, NO_SESSION, Manifest(topic.read()), NoReport())
    first_snapshot.require_no_slot(MemoryEdges(), NO_SESSION, Manifest(), NoReport())


@pytest.mark.parametrize(
    ("found", "server", "begins"),
    [
        (FOUND, replace(SERVER, system_identifier="another"), 1000),
        (replace(FOUND, database="another"), SERVER, 1000),
        (replace(FOUND, plugin="test_decoding"), SERVER, 1000),
        (replace(FOUND, confirmed_flush_lsn=1008), SERVER, 1000),
        (FOUND, SERVER, 0),
    ],
)
def test_h5_h24_a_slot_is_ours_only_at_the_place_noted_for_it(
    found: SlotFacts, server: ServerFacts, begins: int
) -> None:
    topic = MemoryCompactedTopic()
    topic.write(Manifest().begin(replace(INTENT, consistent_point=begins)))
    edges = MemoryEdges(MemorySource(slot=found, server=server))
    with pytest.raises(SlotError, match="did not make it") as caught:
        first_snapshot.require_no_slot(edges, NO_SESSION, Manifest(topic.read()), NoReport())
    assert "pg_drop_replication_slot" in caught.value.hint, "cdc drop would take the publication, too"
