"""Writers that go on all the while: what a live database does to a snapshot."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from cdc.process.clock import SYSTEM_CLOCK

SCHEMA = (
    "create table hot (id int primary key, v int, note text)",
    "create table pairs (a int, b text, v text, primary key (a, b))",
    "create table parted (id int primary key, v int) partition by range (id)",
    "create table parted_low partition of parted for values from (0) to (1000)",
    "create table parted_high partition of parted for values from (1000) to (1000000)",
    "insert into hot select g, 0, repeat('n', g % 300) from generate_series(1, 3000) g",
    "insert into pairs select g, 'b' || g % 3, repeat('p', 50) from generate_series(1, 1500) g",
    "insert into parted select g, 0 from generate_series(1, 2000) g",
)
TABLES = ("public.hot", "public.pairs", "public.parted")


@contextmanager
def writing(dsn: str, seed: int, writers: int = 2) -> Iterator[None]:
    """Insert, update, delete, move keys and roll back, from several sessions, until left."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        dice = random.Random(seed * 100 + number)
        try:
            with psycopg.connect(dsn) as session:
                while not stop.is_set():
                    _transaction(session, dice, number)
                    SYSTEM_CLOCK.sleep(0.004)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def _transaction(session: psycopg.Connection[tuple[object, ...]], dice: random.Random, number: int) -> None:
    # Each writer keeps to its own keys, so that none waits for another.
    mine = dice.randrange(1500) * 2 + number % 2
    fresh = 10_000 + dice.randrange(50_000) * 2 + number % 2
    for _ in range(dice.randrange(1, 5)):
        match dice.randrange(8):
            case 0:
                session.execute("insert into hot values (%s, 1, 'new') on conflict do nothing", [fresh])
            case 1 | 2:
                session.execute("update hot set v = v + 1, note = repeat('u', %s) where id = %s", [mine % 500, mine])
            case 3:
                session.execute("delete from hot where id = %s", [mine])
            case 4:
                session.execute("update pairs set v = %s where a = %s", [str(fresh), mine])
            case 5:
                session.execute("update pairs set b = 'moved' where a = %s and b <> 'moved'", [mine])
            case 6:
                session.execute("update parted set v = v + 1 where id = %s", [mine])
            case _:
                session.execute("insert into parted values (%s, 5) on conflict do nothing", [fresh])
    if dice.random() < 0.1:
        session.rollback()
    else:
        session.commit()
