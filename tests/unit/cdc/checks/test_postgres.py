"""Each check of the source: what it says, and the fix that it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.checks.findings import Finding, Level, exit_code
from cdc.checks.postgres import check_source
from cdc.process.errors import Exit, LogError
from cdc.record.ports import Found, Unknown
from cdc.record.schema import Identity
from cdc.record.server_facts import (
    MARKS,
    PLAIN,
    Owner,
    PublicationFacts,
    Refusal,
    ServerFacts,
    SlotFacts,
    SourceFacts,
    TableFacts,
    TransactionFacts,
    owner_of,
    provider_of,
)
from cdc.record.state import SlotState
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings, parse

SETTINGS: Settings = parse(
    {
        "name": "shop",
        "source": {"dsn": "host=127.0.0.1 dbname=app", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "127.0.0.1:9092"},
    }
)
SERVER = ServerFacts(
    version=180004,
    version_text="18.4",
    database="app",
    database_oid=16384,
    role="cdc",
    granted_replication=True,
    in_recovery=False,
    encoding="UTF8",
    wal_level="logical",
    system_identifier="7",
    timeline=1,
    wal_lsn=1000,
    slots_max=10,
    slots_used=1,
    senders_max=10,
    senders_used=0,
    max_slot_wal_keep_bytes=2**30,
    synchronous_standby_names="",
)
SLOT = SlotFacts(
    slot="cdc_shop",
    plugin="pgoutput",
    database="app",
    active_pid=None,
    wal_status="reserved",
    restart_lsn=1,
    confirmed_flush_lsn=1,
    retained_bytes=1,
    safe_wal_bytes=None,
    invalidation_reason=None,
)
KNOWN = SlotState(
    epoch=1,
    system_identifier="7",
    timeline=1,
    database="app",
    database_oid=16384,
    slot="cdc_shop",
    publication="cdc_shop",
    consistent_point=1,
)
ORDERS = TableFacts(
    table=TableName("public", "orders"), topic="shop.public.orders", identity=Identity.DEFAULT, key=("id",)
)
PUBLICATION = PublicationFacts(
    publication="cdc_shop",
    operations=frozenset({"insert", "update", "delete", "truncate"}),
    via_root=True,
    tables=frozenset({ORDERS.table}),
)
FACTS = SourceFacts(server=SERVER, slot=None, publication=None, tables=(ORDERS,))
RUNNING = replace(FACTS, slot=SLOT, publication=PUBLICATION)


def findings(facts: SourceFacts, known: SlotState | None = None) -> list[Finding]:
    return list(check_source(facts, SETTINGS, known))


def bad(facts: SourceFacts, known: SlotState | None = None) -> list[Finding]:
    return [f for f in findings(facts, known) if f.level is not Level.OK]


def test_a_server_that_is_ready_has_nothing_to_mend() -> None:
    assert bad(FACTS) == []
    assert bad(RUNNING, KNOWN) == []
    assert bad(replace(RUNNING, slot=replace(SLOT, active_pid=7)), KNOWN) == []


@pytest.mark.parametrize(
    ("change", "level", "message", "fix"),
    [
        ({"version": 130020, "version_text": "13.20"}, "fail", "older than 14", "upgrade"),
        ({"version": 150012, "version_text": "15.12"}, "warn", "can lose changes", "15.13"),
        ({"in_recovery": True}, "fail", "standby", "primary"),
        ({"wal_level": "replica"}, "fail", "wal_level is replica", "alter system set wal_level = 'logical';"),
        ({"wal_level": "minimal", "version": 190000}, "fail", "wal_level is minimal", "wal_level = 'logical';"),
        ({"wal_lsn": None}, "fail", "the WAL insert LSN", "PROVIDERS.md"),
        ({"encoding": "LATIN1"}, "warn", "LATIN1", "UTF8"),
        ({"encoding": "SQL_ASCII"}, "fail", "SQL_ASCII", "UTF8"),
        ({"slots_used": 10}, "fail", "10 of 10 replication slots", "max_replication_slots = 12"),
        ({"slots_used": 9}, "fail", "9 of 10 replication slots", "max_replication_slots = 12"),
        ({"senders_used": 10}, "fail", "all 10 walsenders", "max_wal_senders = 12"),
        ({"max_slot_wal_keep_bytes": None}, "warn", "max_slot_wal_keep_size is -1", "max_slot_wal_keep_size = '50GB'"),
    ],
)
def test_h54_each_setting_of_the_server(change: dict[str, Any], level: str, message: str, fix: str) -> None:
    (found,) = bad(replace(FACTS, server=replace(SERVER, **change)))
    assert (found.level, found.part) == (Level(level), "postgres")
    assert message in found.message
    assert fix in found.fix


def test_w9_from_19_on_wal_level_replica_is_raised_by_the_slot() -> None:
    assert bad(replace(FACTS, server=replace(SERVER, version=190000, version_text="19.0", wal_level="replica"))) == []


def test_w3_a_parent_of_captured_children_says_what_it_lacks() -> None:
    (table, *_) = FACTS.tables
    parent = replace(FACTS, tables=(replace(table, children=(TableName("public", "c"),)), *FACTS.tables[1:]))
    assert f"{table.table} is captured without the rows of public.c, which inherit from it" in {
        finding.message for finding in findings(parent)
    }


def test_y10_a_dropped_table_is_told_once_and_hides_nothing() -> None:
    missing = replace(FACTS, missing=(("the table public.x does not exist", "did you mean"),))
    assert [finding.message for finding in bad(missing)] == ["the table public.x does not exist"]
    found = list(check_source(missing, SETTINGS, None, {"public.x": "it is gone"}))
    assert not [finding for finding in found if finding.level is Level.FAIL]


REFUSED = Refusal("Postgres refuses a replication session", "the login's fix", by_right=True, passing=False)


@pytest.mark.parametrize(
    ("refused", "granted", "level", "fix"),
    [
        (REFUSED, False, "fail", 'alter role "cdc" replication;'),
        (REFUSED, True, "fail", "see the server's log"),
        (REFUSED._replace(by_right=False), False, "fail", "the login's fix"),
        (REFUSED._replace(by_right=False, passing=True), True, "warn", "the login's fix"),
    ],
)
def test_x1_a_refused_session_is_explained(refused: Refusal, granted: bool, level: str, fix: str) -> None:
    server = replace(SERVER, granted_replication=granted)
    (found,) = bad(replace(FACTS, server=server, replication=refused))
    assert (found.check, found.level, found.fix) == ("replication_right", Level(level), fix)
    assert refused.message in found.message


def test_x1_every_provider_has_words_of_its_own() -> None:
    """By a setting or by a role of it, and no superuser is asked for where there is none."""
    replica = replace(SERVER, wal_level="replica", max_slot_wal_keep_bytes=None, slots_used=10, senders_used=10)
    for mark in MARKS:
        provider = provider_of({mark}, set())
        assert provider == provider_of(set(), {mark, "app"}) != PLAIN
        found = bad(replace(FACTS, server=replace(replica, provider=provider), replication=REFUSED, hidden=True))
        fixes = " ".join(one.fix for one in found if one.check != "replication_right")
        assert "alter system" not in fixes
        assert "{" not in fixes
    assert provider_of({"rds"}, {"neon_superuser"}).name == "Amazon RDS or Aurora"


def test_h17_a_star_in_synchronous_standby_names_is_warned_of() -> None:
    (found,) = bad(replace(FACTS, server=replace(SERVER, synchronous_standby_names="ANY 1 (*)")))
    assert (found.check, found.level) == ("synchronous_names", Level.WARN)


@pytest.mark.parametrize("change", [{"system_identifier": "8"}, {"timeline": 2}, {"database_oid": 5}])
def test_h5_h6_another_system_behind_the_same_dsn_is_refused(change: dict[str, Any]) -> None:
    found = bad(replace(RUNNING, server=replace(SERVER, **change)), KNOWN)
    assert [f.check for f in found] == ["identity"]
    assert exit_code(found) is Exit.IDENTITY


def test_h55_a_promoted_standby_with_the_slot_is_the_same_system() -> None:
    promoted = replace(RUNNING, server=replace(SERVER, timeline=2))
    kept = replace(SLOT, failover=True, synced=True)
    (found,) = bad(replace(promoted, slot=kept), KNOWN)
    assert (found.check, found.level) == ("identity", Level.WARN)
    for slot in (None, SLOT, replace(kept, synced=False), replace(kept, failover=False)):
        assert "identity" in [f.check for f in bad(replace(promoted, slot=slot), KNOWN) if f.level is Level.FAIL]
    earlier = replace(KNOWN, timeline=3)
    assert "identity" in [f.check for f in bad(replace(promoted, slot=kept), earlier) if f.level is Level.FAIL]


FAILOVER_SLOT = replace(SLOT, failover=True)
WAITED_FOR = replace(SERVER, synchronized_standby_slots="standby_1")


@pytest.mark.parametrize(
    ("server", "slot", "level", "words"),
    [
        (WAITED_FOR, FAILOVER_SLOT, Level.OK, "standby_1"),
        (WAITED_FOR, None, Level.OK, "standby_1"),
        (replace(WAITED_FOR, standbys_away=("standby_1",)), FAILOVER_SLOT, Level.WARN, "no standby reads standby_1"),
        (SERVER, FAILOVER_SLOT, Level.WARN, "synchronized_standby_slots is empty"),
        (SERVER, None, Level.WARN, "synchronized_standby_slots is empty"),
        (WAITED_FOR, SLOT, Level.WARN, "made without failover"),
        (WAITED_FOR, replace(SLOT, temporary=True), Level.FAIL, "temporary"),
        (replace(SERVER, version=160009, version_text="16.9"), SLOT, Level.FAIL, "PostgreSQL 17 or later"),
    ],
)
def test_h55_what_a_failover_slot_needs(server: ServerFacts, slot: SlotFacts | None, level: Level, words: str) -> None:
    wanted = SETTINGS.model_copy(update={"source": SETTINGS.source.model_copy(update={"failover": True})})
    facts = replace(RUNNING, server=server, slot=slot)
    found = [f for f in check_source(facts, wanted, KNOWN) if f.check == "failover"]
    assert [(f.level, words in f.message) for f in found] == [(level, True)]
    assert level is Level.OK or found[0].fix
    assert not [f for f in findings(facts, KNOWN) if f.check == "failover"]


@pytest.mark.parametrize(
    ("slot", "known", "message", "exit_"),
    [
        (None, KNOWN, "is gone", Exit.SLOT),
        (replace(SLOT, wal_status="lost"), KNOWN, "gave up the slot", Exit.SLOT),
        (replace(SLOT, invalidation_reason="idle_timeout"), KNOWN, "idle_timeout", Exit.SLOT),
        (replace(SLOT, plugin="test_decoding"), KNOWN, "exists for test_decoding", Exit.SLOT),
        (replace(SLOT, database="other"), KNOWN, "in other", Exit.SLOT),
        (SLOT, None, "did not make it", Exit.SLOT),
        (replace(SLOT, active_pid=99), None, "in use by process 99", Exit.ACTIVE),
    ],
)
def test_h53_each_state_of_a_slot_that_cannot_serve(
    slot: SlotFacts | None, known: SlotState | None, message: str, exit_: Exit
) -> None:
    found = [f for f in bad(replace(RUNNING, slot=slot), known) if f.check == "slot"]
    assert len(found) == 1
    assert message in found[0].message
    assert found[0].fix
    assert exit_code(found) is exit_


@pytest.mark.parametrize(
    ("slot", "known", "level", "message"),
    [
        (None, None, Level.OK, "to be made by the connector"),
        (replace(SLOT, active_pid=7), None, Level.OK, "while Debezium runs"),
        (SLOT, None, Level.WARN, "nobody reads the slot"),
        (SLOT, KNOWN, Level.WARN, "nobody reads the slot"),
        (None, KNOWN, Level.FAIL, "is gone"),
        (replace(SLOT, wal_status="lost"), None, Level.FAIL, "gave up the slot"),
        (replace(SLOT, database="other"), None, Level.FAIL, "in other"),
    ],
)
def test_debeziums_slot_is_not_advised_away(
    slot: SlotFacts | None, known: SlotState | None, level: Level, message: str
) -> None:
    settings = SETTINGS.model_copy(update={"source": SETTINGS.source.model_copy(update={"kind": "debezium"})})
    found = [f for f in check_source(replace(RUNNING, slot=slot), settings, known) if f.check == "slot"]
    assert [(f.level, message in f.message) for f in found] == [(level, True)]
    assert "pg_drop_replication_slot" not in found[0].fix
    without_truncate = replace(PUBLICATION, operations=PUBLICATION.operations - {"truncate"})
    assert not [
        f
        for f in check_source(replace(RUNNING, publication=without_truncate), settings, known)
        if f.check == "publication" and f.level is not Level.OK
    ]


def test_h24_transactions_that_delay_slot_creation_are_named() -> None:
    held = (
        TransactionFacts(pid=7, name="psql", role="app", age_s=600),
        TransactionFacts(pid=None, name="it's", role="app", age_s=6000),
    )
    found = bad(replace(FACTS, transactions=held))
    assert [f.fix for f in found] == ["select pg_terminate_backend(7);", "rollback prepared 'it''s';"]
    assert all("cdc snapshot would wait for it" in f.message for f in found)


def test_h42_problems_of_a_table_are_failures_with_their_sql() -> None:
    problem = ("public.orders has no key, and a compacted topic needs one", "alter table ...;")
    (found,) = bad(replace(FACTS, tables=(replace(ORDERS, problems=(problem,)),)))
    assert (found.level, found.message, found.fix) == (Level.FAIL, *problem)


def test_h36_generated_columns_that_stay_out_are_said_aloud() -> None:
    said = [f.message for f in findings(replace(FACTS, tables=(replace(ORDERS, generated=("total",)),)))]
    assert any("generated columns stay out: total" in message for message in said)


def test_the_publication_is_compared_with_the_settings() -> None:
    other = TableName("public", "Other")
    held = replace(PUBLICATION, tables=frozenset({other}), operations=frozenset({"insert", "update", "delete"}))
    found = {f.fix: f.level for f in bad(replace(RUNNING, publication=held), KNOWN)}
    assert found == {
        "alter publication \"cdc_shop\" set (publish = 'insert, update, delete, truncate');": Level.FAIL,
        'alter publication "cdc_shop" add table only "public"."orders";': Level.FAIL,
        'alter publication "cdc_shop" drop table only "public"."Other";': Level.WARN,
    }


def test_h52_a_publication_dropped_under_its_slot_is_a_failure() -> None:
    (found,) = bad(replace(RUNNING, publication=None), KNOWN)
    assert (found.check, found.exit) == ("publication", Exit.SLOT)


NOT_READ = Unknown(LogError("cannot reach Kafka"))


@pytest.mark.parametrize(
    "slot",
    [
        None,
        SLOT,
        replace(SLOT, active_pid=7),
        replace(SLOT, wal_status="lost"),
        replace(SLOT, invalidation_reason="idle_timeout"),
        replace(SLOT, plugin="test_decoding"),
        replace(SLOT, database="other"),
    ],
)
def test_h109_without_the_state_no_slot_is_judged(slot: SlotFacts | None) -> None:
    facts = replace(RUNNING, slot=slot, publication=None)
    found = [f for f in check_source(facts, SETTINGS, NOT_READ) if f.level is not Level.OK]
    assert [(f.check, f.level) for f in found] == [(c, Level.WARN) for c in ("identity", "slot", "publication")]
    assert all("not known" in f.message for f in found)
    assert not any(words in f.fix for f in found for words in ("drop", "new-epoch", "another name"))


def test_h109_a_slot_of_others_is_not_to_be_dropped_outright() -> None:
    for slot in (replace(SLOT, plugin="test_decoding"), replace(SLOT, database="other"), SLOT):
        for found in bad(replace(RUNNING, slot=slot), None):
            assert "pg_drop" not in found.fix or "if nobody needs" in found.fix


@pytest.mark.parametrize(
    ("made", "owner"),
    [
        (KNOWN, Owner.OURS),
        (replace(KNOWN, system_identifier="8"), Owner.OTHER),
        (replace(KNOWN, slot="else"), Owner.OTHER),
        (replace(KNOWN, database="else"), Owner.OTHER),
        (None, Owner.NOBODY),
        (NOT_READ, Owner.UNKNOWN),
    ],
)
def test_h109_whose_a_slot_is(made: Found[SlotState], owner: Owner) -> None:
    assert owner_of(SLOT, SERVER, made) is owner
