"""The double of the change stream keeps the promises of the real one: one suite over both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest

from cdc.process.clock import SYSTEM_CLOCK, Clock, ManualClock
from cdc.process.errors import SourceError
from cdc.record.ports import ChangeStream, StreamBatch
from cdc.settings.model import SourceSettings
from connectors.postgres.server.connections import connect
from connectors.postgres.server.walsender import ReplicationStream
from tests.memory_log import MemoryStream
from tests.waiting import wait_until


@dataclass(frozen=True)
class Stream:
    """A stream that has just begun, and what else can be done to its source."""

    stream: ChangeStream
    clock: Clock
    commit: Callable[[str], int]
    """Commit a row that holds this text; an LSN behind the commit."""
    break_off: Callable[[], object]
    """The source ends the connection."""
    forgotten: Callable[[], int]
    """The LSN below which the source gives nothing again."""


def in_memory() -> Stream:
    clock = ManualClock()
    stream = MemoryStream(clock=clock)
    ends = [100]

    def commit(text: str) -> int:
        ends.append(ends[-1] + 100)
        stream.batches.append(StreamBatch([b"begin", text.encode(), b"commit"], ends[-1]))
        return ends[-1]

    def broken() -> None:
        raise SourceError("the server ended the connection")

    def break_off() -> None:
        stream.at_end = broken

    return Stream(stream, clock, commit, break_off, lambda: max(stream.acknowledged))


def on_postgres(dsn: str) -> Iterator[Stream]:
    with psycopg.connect(dsn, autocommit=True) as owner:
        name = f"stream_{owner.info.dbname}"
        owner.execute("create table a (t text)")
        owner.execute("create publication stream for table a")
        owner.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        (start,) = number(owner, "confirmed_flush_lsn", "pg_replication_slots where slot_name = %s", name)
        settings = SourceSettings(dsn=dsn, tables=("public.a",))
        stream = ReplicationStream(
            connect(settings, replication=True),
            settings,
            slot=name,
            publication="stream",
            start_lsn=start,
            row_limit=1 << 20,
            clock=SYSTEM_CLOCK,
        )

        def commit(text: str) -> int:
            owner.execute("insert into a values (%s)", [text])
            return number(owner, "pg_current_wal_insert_lsn()", "pg_settings limit 1")[0]

        def forgotten() -> int:
            return number(owner, "confirmed_flush_lsn", "pg_replication_slots where slot_name = %s", name)[0]

        ended = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s"
        yield Stream(stream, SYSTEM_CLOCK, commit, lambda: owner.execute(ended, [name]), forgotten)
        stream.close()


def number(session: psycopg.Connection, lsn: str, where: str, *arguments: str) -> tuple[int]:
    row = session.execute(f"select ({lsn} - '0/0')::bigint from {where}".encode(), arguments).fetchone()
    assert row is not None
    return (int(row[0]),)


@pytest.fixture(params=["memory", "postgres"])
def source(request: pytest.FixtureRequest) -> Iterator[Stream]:
    if request.param == "memory":
        yield in_memory()
    else:
        yield from on_postgres(request.getfixturevalue("database"))


def read_until(source: Stream, *texts: str) -> list[str]:
    """Which of these texts the frames held, in order, until all have come."""
    found: list[str] = []

    def come() -> bool:
        frames = source.stream.read(0.1).frames
        found.extend(text for frame in frames for text in texts if text.encode() in frame)
        return len(found) >= len(texts)

    wait_until(come)
    return found


def test_whole_frames_come_in_the_order_of_their_commits(source: Stream) -> None:
    lsns = [source.commit(text) for text in ("first", "second", "third")]
    assert lsns == sorted(lsns)
    assert read_until(source, "first", "second", "third") == ["first", "second", "third"]


def test_the_received_lsn_grows_to_the_end_of_the_log(source: Stream) -> None:
    before = source.stream.received
    end = source.commit("first")
    read_until(source, "first")

    def spoken() -> bool:
        source.stream.read(0.1)
        return source.stream.received >= end

    wait_until(spoken)
    assert source.stream.received > before


def test_a_read_of_nothing_ends_by_its_time(source: Stream) -> None:
    began_s = source.clock.monotonic()
    while source.stream.read(0.2).frames:
        began_s = source.clock.monotonic()
    assert source.clock.monotonic() - began_s < 5
    assert source.stream.last_feedback_s <= source.clock.monotonic()


def test_h16_a_close_says_the_last_acknowledgement(source: Stream) -> None:
    end = source.commit("first")
    read_until(source, "first")
    source.stream.acknowledge(end - 8)
    source.stream.acknowledge(end)
    source.stream.close()
    wait_until(lambda: source.forgotten() >= end)
    assert source.forgotten() == end


def test_a_broken_connection_is_a_source_error_and_closes(source: Stream) -> None:
    source.break_off()

    def broken() -> bool:
        try:
            source.stream.read(0.1)
        except SourceError:
            return True
        return False

    wait_until(broken)
    source.stream.close()
    with pytest.raises(SourceError):
        source.stream.read(0.1)
