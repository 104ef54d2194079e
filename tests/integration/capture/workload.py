"""Changes of every kind, mixed by a seed, so that a failure can be run again."""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg

TABLES = (
    "create table t (id int primary key, v text, big text, n int)",
    "alter table t alter big set storage external",
    "create table f (id int primary key, v text, big text, n int)",
    "alter table f alter big set storage external",
    "alter table f replica identity full",
    "create table d (id int primary key deferrable initially deferred, v text)",
    "alter table d replica identity full",
    "create table p (id int primary key, v text) partition by range (id)",
    "create table p1 partition of p for values from (0) to (500)",
    "create table p2 partition of p for values from (500) to (2000)",
)
NAMES = ("t", "f", "d", "p")


class Workload:
    """Transactions on :data:`TABLES`; ``seed`` decides them all."""

    def __init__(self, session: psycopg.Connection[Any], seed: int) -> None:
        self._session = session
        self._random = random.Random(seed)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self) -> None:
        """One transaction of one to a dozen statements, some of them rolled back to a savepoint."""
        pick = self._random
        if pick.random() < 0.01:
            self._session.execute(f"truncate {pick.choice(NAMES)}".encode())
        with self._session.transaction():
            for _ in range(pick.choice((1, 1, 1, 3, 12))):
                if pick.random() < 0.1:
                    self._session.execute("savepoint s")
                    self._statement()
                    self._session.execute("rollback to savepoint s")
                else:
                    self._statement()

    def _statement(self) -> None:
        pick = self._random
        key, other = pick.randrange(1, 1000), pick.randrange(1, 1000)
        wide, small = pick.choice(("t", "f")), key % 60
        statements = (
            f"insert into {wide} select {key} + g, 'v', repeat(md5(g::text), 100), g from generate_series(0, 9) g"
            " on conflict (id) do update set v = 'again'",
            f"update {wide} set n = n + 1 where id between {key} and {key} + 20",
            f"update {wide} set big = repeat(md5('{key}'), 100) where id = {key}",
            f"delete from {wide} where id between {key} and {key} + 3",
            f"update {wide} set id = id + 1000 where id = {key} and not exists"
            f" (select from {wide} where id = {key} + 1000)",
            f"delete from {wide} where id > 1000",
            f"with gone as (delete from {wide} where id = {key} returning *)"
            f" select count(*) from gone; insert into {wide} values ({key}, 'new', 'b', 0) on conflict do nothing",
            f"insert into d select {small} + g, 'd{other}' from generate_series(0, 4) g"
            f" where not exists (select from d where id = {small} + g)",
            f"update d set id = id + 1 where id >= {small}",
            f"update d set v = 'u{other}' where id % 7 = {small % 7}",
            "delete from d where id > 60",
            f"insert into p values ({key}, 'p') on conflict (id) do update set v = 'q{other}'",
            f"update p set id = {other} where id = {key} and not exists (select from p where id = {other})",
            f"delete from p where id = {key}",
        )
        self._session.execute(pick.choice(statements).encode())


class Background:
    """A workload that goes on in a thread until told to stop; as a context."""

    def __init__(self, dsn: str, seed: int) -> None:
        self._dsn = dsn
        self._seed = seed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as session:
                workload = Workload(session, self._seed)
                while not self._stop.wait(0.002):
                    workload.step()
        except BaseException as error:
            self.error = error
