"""Which faults ``cdc status`` says, which it does not, and the document that ``--json`` prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.figures.process_status import Process, Trouble
from cdc.process.errors import Exit, LogError, SinkError, SourceError
from cdc.record.ports import Unknown
from cdc.record.progress import Hold, Mark, Watermark
from cdc.record.server_facts import SlotFacts
from cdc.record.state import ReadingState, SnapshotState
from cdc.record.tables_aside import AsideState, Cause, TableState, Unfollowed
from cdc.settings.model import LimitSettings
from cdc.status.facts import ConnectorFacts, FreshFacts, Reread, SinkFacts, SourceState, StatusFacts, rereads_of
from cdc.status.rules import Status, status_of
from tests.unit.cdc.checks.test_postgres import KNOWN, SERVER, SLOT

HEAD = 0x1000
READ = replace(
    SLOT, active_pid=7, wal_status="extended", confirmed_flush_lsn=0x800, retained_bytes=4096, safe_wal_bytes=512
)
SOURCE = SourceState(address="127.0.0.1:5432/shop", server=replace(SERVER, wal_lsn=HEAD), slot=READ)
SNAPSHOT = SnapshotState(epoch=1, state="complete", consistent_point=1, last_cut_lsn=0, tables=["a"], rows=1234)
FACTS = StatusFacts(
    name="shop",
    slot_name="cdc_shop",
    now_ms=1_000_000,
    source=SOURCE,
    slot=KNOWN,
    snapshot=SNAPSHOT,
    marks=[Mark(1, HEAD - 16, 999_000)],
    sinks=[SinkFacts(name="cache", kind="redis", watermark=Watermark(epoch=1, lsn=HEAD - 16))],
)
CONNECTOR = ConnectorFacts(
    name="debezium", database="postgres", address="db:5432", state="RUNNING", snapshot="complete", lsn=HEAD - 16
)
FAILED = Reread(table="public.a", reason="", state="failed", detail="permission denied", rows=0, share=0.0, first=False)


def judged(facts: StatusFacts) -> Status:
    return status_of(facts, LimitSettings())


def with_slot(slot: SlotFacts | None) -> StatusFacts:
    return replace(FACTS, source=replace(SOURCE, slot=slot))


def aside(table: str) -> AsideState:
    return AsideState(
        table=table,
        epoch=1,
        state=TableState.ASIDE,
        cause=Cause.NOT_READABLE,
        detail=f"the role may not read {table}",
        since_lsn=0x200,
        since_ms=77,
    )


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (with_slot(replace(READ, wal_status="lost")), "the slot cdc_shop is lost"),
        (with_slot(replace(READ, wal_status="unreserved")), "the slot cdc_shop is unreserved"),
        (with_slot(replace(READ, invalidation_reason="idle_timeout")), "the slot cdc_shop is idle_timeout"),
        (with_slot(None), "the slot cdc_shop is gone"),
        (with_slot(SLOT), "nobody reads the slot cdc_shop: cdc run is not running"),
        (replace(with_slot(SLOT), connector=CONNECTOR), "nobody reads the slot cdc_shop: the connector is not running"),
        (replace(FACTS, rereads=[FAILED]), "public.a could not be read again: permission denied"),
        (replace(FACTS, asides={"public.a": aside("public.a")}), aside("public.a").sentence()),
        (
            replace(FACTS, not_followed={"public.a": Unfollowed("public.a is not published")}),
            "public.a is not published",
        ),
    ],
)
def test_one_fault_is_one_sentence_and_exit_code_1(facts: StatusFacts, said: str) -> None:
    shown = judged(facts)
    assert (list(shown.passed), shown.exit) == ([said], Exit.DIFFERENCE)


SINK = Process(command="cdc sink", setting="[spark] http_address", address="127.0.0.1:1", parts=["cache"])
STOPPED = replace(SINK, said={"cache": Trouble("stopped: another writes", "stop it")})
LATE = SinkFacts(name="cache", kind="redis", watermark=Watermark(epoch=1, lsn=HEAD - 512))
MARKS = [Mark(1, HEAD - 256, 900_000), *FACTS.marks]


def told(*processes: Process, late: bool = False) -> list[str]:
    facts = replace(FACTS, fresh=FreshFacts(processes=processes))
    facts = replace(facts, sinks=[LATE], marks=MARKS) if late else facts
    return list(judged(facts).passed)


def test_y11_a_parts_own_word_stands_before_what_the_log_shows() -> None:
    behind = "cache is > 100.0 s behind; the limit is 60.0 s"
    assert told(STOPPED) == ["cache: stopped: another writes"]
    assert told(STOPPED, late=True) == ["cache: stopped: another writes", behind]
    assert told(SINK, late=True) == ["cdc sink does not answer at 127.0.0.1:1", behind]
    assert told(replace(SINK, said={"cache": Trouble()}), late=True) == [behind]
    unset = "no address is set for cdc sink ([spark] http_address), so whether it runs is not known"
    assert told(replace(SINK, address=""), late=True) == [unset, behind]


def test_y11_a_process_that_is_not_there_is_no_fault_by_itself() -> None:
    """A pipeline may be fed now and then, by ``--until-caught-up``."""
    assert told(SINK) == told(replace(SINK, address="")) == []


def test_y11_a_store_whose_sink_left_while_it_filled_is_not_well() -> None:
    filling = SinkFacts(name="cache", kind="redis", watermark=Watermark(epoch=1, lsn=0))
    facts = replace(FACTS, sinks=[filling], fresh=FreshFacts(processes=[SINK]))
    assert list(judged(facts).passed) == ["cdc sink does not answer at 127.0.0.1:1"]
    kept = replace(SINK, said={"cache": Trouble()})
    for process in (kept, replace(SINK, address="")):
        assert list(judged(replace(facts, fresh=FreshFacts(processes=[process]))).passed) == []


def test_y11_a_store_that_does_not_answer_hides_no_own_word() -> None:
    away = SinkFacts(name="cache", kind="redis", watermark=Unknown(SinkError("it has not answered in 15 s")))
    facts = replace(FACTS, sinks=[away], fresh=FreshFacts(processes=[STOPPED]))
    assert "cache: stopped: another writes" in judged(facts).passed


def test_y11_each_condition_names_what_ends_it() -> None:
    facts = replace(FACTS, fresh=FreshFacts(processes=[STOPPED]), rereads=[FAILED], sinks=[LATE], marks=MARKS)
    shown = judged(facts)
    assert len(shown.conditions) == 3
    assert all(one.cure for one in shown.conditions)
    assert shown.document()["cures"]["cache: stopped: another writes"] == "stop it"


def test_y11_capture_may_wait_while_the_first_snapshot_is_read() -> None:
    word = {"cdc run": Trouble("waiting: the first snapshot is not complete")}
    run = Process(command="cdc run", setting="[capture] http_address", address="a:1", parts=["cdc run"], said=word)
    copying = replace(FACTS, snapshot=replace(SNAPSHOT, state="running"), fresh=FreshFacts(processes=[run]))
    assert list(judged(copying).passed) == []
    assert told(run) == ["cdc run: waiting: the first snapshot is not complete"]


def test_y5_a_failed_reading_is_told_until_the_whole_was_read() -> None:
    failed = ReadingState(
        id="snapshot:public.a:partitions", table="public.a", serial=1, epoch=1, state="failed", finished_ns=5
    )
    done = ReadingState(id="snapshot:public.a", table="public.a", serial=2, epoch=1, state="done", started_ns=6)
    documents = {one.key(): one.to_json() for one in (failed, done)}
    assert rereads_of(documents) == []
    assert [one.state for one in rereads_of({failed.key(): failed.to_json()})] == ["failed"]


@pytest.mark.parametrize(
    "facts",
    [
        FACTS,
        replace(FACTS, connector=CONNECTOR),
        replace(FACTS, rereads=[replace(FAILED, state="running")]),
        replace(FACTS, rereads=[replace(FAILED, state="waiting")]),
    ],
)
def test_what_goes_its_way_is_no_fault(facts: StatusFacts) -> None:
    shown = judged(facts)
    assert (list(shown.passed), shown.exit) == ([], Exit.OK)


def test_nobody_has_to_read_the_slot_during_the_first_snapshot() -> None:
    copying = replace(with_slot(SLOT), snapshot=replace(SNAPSHOT, state="running"))
    assert list(judged(copying).passed) == []


def test_h109_without_the_log_a_slot_is_not_said_to_be_gone() -> None:
    silent = Unknown(LogError("no broker answers"))
    shown = judged(replace(with_slot(None), slot=silent, snapshot=silent, marks=(), log=silent))
    assert list(shown.passed) == ["no broker answers"]
    assert shown.exit is Exit.UNAVAILABLE


def test_a_connector_makes_its_own_first_snapshot() -> None:
    """Nobody is told to run ``cdc snapshot`` where Debezium captures."""
    before = replace(FACTS, snapshot=None, connector=replace(CONNECTOR, snapshot="none"))
    shown = judged(before)
    assert (shown.snapshot, list(shown.passed)) == ("none", [])
    assert judged(replace(before, connector=None)).passed[0].startswith("nothing is captured before")


def test_h109_the_snapshot_of_a_silent_connector_is_not_known() -> None:
    shown = judged(replace(FACTS, connector=Unknown(SourceError("Kafka Connect cannot be reached"))))
    document = shown.document()
    assert document["snapshot"]["state"] == "unknown"
    assert document["connector"] is None
    assert document["unknown"] == {"connector": "Kafka Connect cannot be reached"}


def test_h20_a_store_is_not_whole_before_a_tables_first_rows() -> None:
    first = replace(FAILED, state="running", first=True)
    assert [store.state for store in judged(replace(FACTS, rereads=[first])).sinks] == ["bootstrapping"]
    again = replace(first, first=False)
    assert [store.state for store in judged(replace(FACTS, rereads=[again, first])).sinks] == ["bootstrapping"]
    assert [store.state for store in judged(replace(FACTS, rereads=[again])).sinks] == ["consistent"]


def test_a_store_without_lsns_that_holds_a_table_says_so() -> None:
    hold = Hold(table="crm.a", reason="crm.a: column n is text in the store")
    held = Watermark(epoch=1, lsn=0, offsets={"shop.crm.a": {0: 4}}, held={"shop.crm.a": hold})
    facts = replace(
        FACTS,
        source=None,
        slot=None,
        snapshot=None,
        marks=(),
        connector=replace(CONNECTOR, lsn=None),
        ends={"shop.crm.a": {0: 4}},
        sinks=[SinkFacts(name="cache", kind="redis", watermark=held)],
    )
    shown = judged(facts)
    assert [(store.state, store.lag_records) for store in shown.sinks] == [("holding", 0)]
    assert list(shown.passed) == [hold.sentence("cache")]


def test_the_document_that_scripts_read() -> None:
    rereads = [replace(FAILED, state="running", reason="it was rewritten", detail="", rows=5, share=0.5)]
    facts = replace(FACTS, tables=3, asides={"public.b": aside("public.b")}, rereads=rereads, sinks=())
    assert judged(facts).document() == {
        "name": "shop",
        "epoch": 1,
        "source": {"address": "127.0.0.1:5432/shop", "wal_lsn": "0/1000"},
        "slot": {
            "name": "cdc_shop",
            "active_pid": 7,
            "wal_status": "extended",
            "confirmed_flush_lsn": "0/800",
            "retained_bytes": 4096,
            "safe_wal_bytes": 512,
        },
        "log": {
            "lsn": "0/FF0",
            "lag_bytes": 16,
            "lag_seconds": 0.0,
            "freshness": None,
            "freshness_known": False,
        },
        "connector": None,
        "snapshot": {"state": "complete", "rows": 1234},
        "rereads": [
            {
                "table": "public.a",
                "reason": "it was rewritten",
                "state": "running",
                "detail": "",
                "rows": 5,
                "share": 0.5,
                "first": False,
            }
        ],
        "tables": {
            "following": 2,
            "others": {
                "public.b": {
                    "state": "aside",
                    "cause": "not_readable",
                    "detail": "the role may not read public.b",
                    "since_lsn": "0/200",
                    "since_ms": 77,
                }
            },
        },
        "sinks": {},
        "views": {},
        "streams": {},
        "passed": [aside("public.b").sentence()],
        "cures": {
            aside("public.b").sentence(): "grant select on public.b to the role of capture; then it is read again by "
            "itself"
        },
        "unknown": {},
    }


def test_the_document_before_anything_was_captured() -> None:
    before = replace(FACTS, slot=None, snapshot=None, marks=(), source=replace(SOURCE, slot=None), sinks=())
    document = judged(before).document()
    assert document["snapshot"] == {"state": "none", "rows": 0}
    assert (document["epoch"], document["slot"], document["log"]["lsn"]) == (None, None, None)


def test_the_document_names_each_part_that_did_not_answer() -> None:
    store = SinkFacts(name="cache", kind="redis", watermark=Unknown(SinkError("cannot reach Redis")))
    shown = judged(replace(FACTS, source=Unknown(SourceError("cannot connect")), sinks=[store]))
    document = shown.document()
    assert document["unknown"] == {"source": "cannot connect", "cache": "cannot reach Redis"}
    assert document["passed"] == ["cannot connect", "cache: cannot reach Redis"]
    assert document["sinks"]["cache"]["error"] == "cannot reach Redis"


@pytest.mark.parametrize(("tables", "following"), [(3, 1), (2, 0), (1, 0)])
def test_tables_set_aside_are_not_among_those_followed(tables: int, following: int) -> None:
    """There may be more of them than tables: one of them may have left the settings."""
    asides = {table: aside(table) for table in ("public.a", "public.b")}
    document = judged(replace(FACTS, tables=tables, asides=asides)).document()
    assert document["tables"]["following"] == following
    assert sorted(document["tables"]["others"]) == ["public.a", "public.b"]
