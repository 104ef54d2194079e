"""A server that says nothing for too long is left, and only then."""

from __future__ import annotations

import threading
from contextlib import closing

import psycopg
import pytest

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import SourceError
from connectors.postgres.server.connections import connect
from connectors.postgres.server.walsender import ReplicationStream
from tests.golden.direct import make_slot, settings_of
from tests.waiting import wait_until


class Leaping:
    """The real time, and ``leap_s`` more at each look of the thread that reads."""

    def __init__(self) -> None:
        self.leap_s = 0.0
        self._leapt_s = 0.0
        self._reader = threading.current_thread()

    def monotonic(self) -> float:
        if threading.current_thread() is self._reader:
            self._leapt_s += self.leap_s
        return SYSTEM_CLOCK.monotonic() + self._leapt_s

    def now_ns(self) -> int:
        return SYSTEM_CLOCK.now_ns()

    def sleep(self, seconds: float) -> None:
        SYSTEM_CLOCK.sleep(seconds)


def test_h13_silence_is_counted_from_the_last_word(database: str) -> None:
    settings = settings_of("s", database, "readable")
    with psycopg.connect(database, autocommit=True) as owner, closing(connect(settings.source)) as conn:
        owner.execute("create table t (id int primary key)")
        conn.execute("create publication silent for table public.t")
        connection = connect(settings.source, replication=True)
        point = make_slot(connection, "silent_" + owner.info.dbname)
        clock = Leaping()
        stream = ReplicationStream(
            connection, settings.source, slot="silent_" + owner.info.dbname, publication="silent", start_lsn=point,
            row_limit=1 << 20, clock=clock,
        )  # fmt: skip
        with closing(stream):
            most_of_it_s = 0.6 * stream._silence_s

            def silent() -> None:
                """A read in which nothing comes; what still came before it does not count."""
                clock.leap_s = 0
                while stream.read(0.2).frames:
                    pass
                clock.leap_s = most_of_it_s
                stream.read(0.01)
                clock.leap_s = 0

            for number in range(4):
                silent()
                owner.execute("insert into t values (%s)", [number])
                wait_until(lambda: stream.read(0.1).frames)

            def twice() -> None:
                """The server may say something by itself between the two: then it is not silent yet."""
                silent()
                clock.leap_s = most_of_it_s
                stream.read(0.01)

            with pytest.raises(SourceError, match=r"has been silent for \d+ s"):
                wait_until(twice)
            clock.leap_s = 0
