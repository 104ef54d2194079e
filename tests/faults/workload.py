"""What an application may do to a database, all of it at once, by seed: hazards.md's list of what must always be mixed.

Long and out-of-order commits, nested savepoints, rollbacks, prepared transactions, COPY, key moves, shifts and swaps,
delete + reinsert, untouched TOAST, added columns, truncates, moves between partitions, extreme values, messages.
What an aborted transaction writes has the word :data:`ABORTED` in it, so that a single leak is found.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psycopg

from cdc.process.clock import SYSTEM_CLOCK

ABORTED = "this-was-rolled-back"
TABLES = ("t", "f", "i", "d", "p", "w", "x", '"Upper"')
SCHEMA = (
    "create table t (id int primary key, v text, big text, n int)",
    "alter table t alter big set storage external",
    "create table f (id int primary key, v text, big text, n int)",
    "alter table f alter big set storage external",
    "alter table f replica identity full",
    "create table i (id int primary key, v text, big text, code int not null unique)",
    "alter table i alter big set storage external",
    "alter table i replica identity using index i_code_key",
    "create table d (id int primary key deferrable initially deferred, v text)",
    "alter table d replica identity full",
    "create table p (id int primary key, v text) partition by range (id)",
    "create table p1 partition of p for values from (0) to (300)",
    "create table p2 partition of p for values from (300) to (100000000)",
    "create table w (id int primary key, v text)",
    "create type mood as enum ('sad', 'ok', 'Über')",
    "create table x (id int primary key, v text, i8 int8, num numeric, small numeric(8,2), f4 float4, f8 float8,"
    " ts timestamp(3), tz timestamptz, d date, ti time, tt timetz, iv interval, b bytea, j jsonb, js json, u uuid,"
    " ip inet, m mood, a int[], ta text[], bits bit varying, r int4range, c char(5), bo boolean)",
    'create table "Upper" ("Id" int, v text, "weird, ""name" text, primary key ("Id"))',
)
_EXTREMES: Mapping[str, tuple[str, ...]] = {
    "i8": ("-9223372036854775808", "9223372036854775807", "0"),
    "num": ("'NaN'", "'Infinity'", "1e-20", "1e30", "-0.000", "123456789012345678901234567890.123456789"),
    "small": ("-999999.99", "0.10", "0"),
    "f4": ("'NaN'", "'-Infinity'", "'-0'", "1e-38", "0.1"),
    "f8": ("'NaN'", "'Infinity'", "'-0'", "1e-308", "0.30000000000000004"),
    "ts": ("'infinity'", "'-infinity'", "'0044-03-15 12:00:00 BC'", "'294276-12-31 23:59:59.999'", "now()"),
    "tz": ("'infinity'", "'0001-01-01 00:00:00+00'", "'99999-01-01 00:00:00+15:59'", "now()"),
    "d": ("'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'", "current_date"),
    "ti": ("'24:00:00'", "'00:00:00.000001'"),
    "tt": ("'24:00:00-15:59'", "'12:00:00+05:30'"),
    "iv": ("'-178000000 years'", "'1 mon -1 day 00:00:00.000001'", "'0'"),
    "b": ("'\\x00ff00'", "''", "decode(repeat('00ff', 3000), 'hex')"),
    "j": ("'{\"a\": 1e400}'", "'null'", '\'{"b":{"c":[1,2.50,"\\\\"]}}\'', "'[]'"),
    "js": ('\'{"a":1,"a":2}\'', "'\"\\u00e9\"'", "' [ 1 ] '"),
    "u": ("gen_random_uuid()",),
    "ip": ("'::1/64'", "'10.0.0.0/8'"),
    "m": ("'Über'", "'sad'"),
    "a": ("'{1,NULL,-2147483648}'", "'{}'", "'{{1,2},{3,4}}'"),
    "ta": ("array['', null, E'a\"b\\\\c', 'NULL']", "'{}'"),
    "bits": ("b'101'", "b''"),
    "r": ("'[1,5)'", "'empty'", "'(,)'"),
    "c": ("'a'", "''"),
    "bo": ("true", "false"),
    "v": ("E'tab\\tnew\\nline \\U0001F600'", "''", "repeat('ü', 3000)", "E'\\x01 \\x7f'"),
}
_MOST_COLUMNS = 12
_PASSING = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.SerializationFailure,
    psycopg.errors.QueryCanceled,
    psycopg.errors.InFailedSqlTransaction,
    psycopg.errors.ConfigurationLimitExceeded,
    psycopg.errors.OutOfMemory,
)
Say = Callable[[str], object]


class Client:
    """One session's transactions, decided by ``pick``. ``lane``: keys of its own for COPY and prepared work."""

    def __init__(self, session: psycopg.Connection[Any], pick: random.Random, lane: int) -> None:
        self._session = session
        self._pick = pick
        self._fresh = 10_000_000 * (lane + 1) + pick.randrange(1_000_000)
        self._lane = lane
        self._kinds: tuple[Callable[[], None], ...] = (
            *(self._short,) * 8,
            *(self._long, self._savepoints, self._rolled_back, self._copied, self._extreme) * 2,
            *(self._prepared, self._moved, self._messages, self._many, self._ddl),
        )

    def transact(self) -> str:
        """One transaction of some kind; returns which. What others' locks and keys forbid is given up."""
        kind = self._pick.choice(self._kinds)
        if self._pick.random() < 0.004:
            kind = self._truncated
        try:
            kind()
        except _PASSING:
            if not self._session.closed:
                self._session.rollback()
            return "given up"
        return kind.__name__.strip("_")

    def _do(self, *statements: str) -> None:
        for statement in statements:
            self._session.execute(statement.encode())

    def _short(self) -> None:
        with self._session.transaction():
            for _ in range(self._pick.choice((1, 1, 1, 3, 8))):
                self._do(self._statement())

    def _long(self) -> None:
        """Begins early and commits late, behind others that began later."""
        with self._session.transaction():
            for _ in range(3):
                self._do(self._statement(), f"select pg_sleep({self._pick.uniform(0, 0.08):.3f})")

    def _savepoints(self) -> None:
        with self._session.transaction():
            self._do("savepoint a", self._statement(), "savepoint b", self._aborted(), "savepoint c")
            self._do(self._statement(), "rollback to savepoint b", self._statement(), "savepoint d", self._aborted())
            self._do("rollback to savepoint d")

    def _rolled_back(self) -> None:
        self._do("begin", self._statement(), self._aborted(), "rollback")

    def _prepared(self) -> None:
        gid = f"{self._session.info.dbname}-{self._lane}-{self._fresh}"
        self._fresh += 1
        if self._pick.random() < 0.3:
            self._do("begin", self._aborted(), f"prepare transaction '{gid}'", f"rollback prepared '{gid}'")
            return
        self._do("begin", f"insert into t values ({self._fresh}, 'prepared', 'p', 1)", f"prepare transaction '{gid}'")
        self._do(f"update f set n = n + 1 where id = {self._key()}", f"commit prepared '{gid}'")

    def _copied(self) -> None:
        first, table = self._fresh, self._pick.choice(("t", "f"))
        self._fresh += 20
        with self._session.cursor() as cursor, cursor.copy(f"copy {table} from stdin".encode()) as copy:
            for number in range(20):
                copy.write_row((first + number, "copied", "c" * 10, number))
        if self._pick.random() < 0.7:
            self._do(f"delete from {table} where id between {first} and {first + 15}")

    def _extreme(self) -> None:
        chosen = {name: self._pick.choice((*values, "null")) for name, values in _EXTREMES.items()}
        some = {name: value for name, value in chosen.items() if self._pick.random() < 0.6} or chosen
        setting = ", ".join(f"{name} = excluded.{name}" for name in some)
        self._do(
            f"insert into x (id, {', '.join(some)}) values ({self._key() % 80}, {', '.join(some.values())})"
            f" on conflict (id) do update set {setting}"
        )

    def _moved(self) -> None:
        """Keys of a deferrable constraint: shifted, swapped, and put back."""
        a, b = self._key() % 30, self._key() % 30
        with self._session.transaction():
            self._do("lock table d in exclusive mode")
            self._do(
                f"insert into d select g, 'd' from generate_series({a}, {a} + 4) g"
                " where not exists (select from d where id = g)",
                self._pick.choice(
                    (
                        f"update d set id = id + 1 where id >= {a}",
                        f"update d set id = case id when {a} then {b} else {a} end where id in ({a}, {b})",
                        f"update d set id = {b + 31} - id where id between 0 and {b + 31}",
                    )
                ),
                "delete from d where id > 60",
            )

    def _messages(self) -> None:
        self._do("select pg_logical_emit_message(false, 'app', 'at once')", "begin", "commit", "begin")
        self._do("select pg_logical_emit_message(true, 'app', 'with it')", self._statement())
        self._do("select pg_logical_emit_message(false, 'app', 'inside')", self._pick.choice(("commit", "rollback")))

    def _many(self) -> None:
        count = self._pick.choice((20, 60, 400))
        self._do(
            f"insert into w select g, 'many' from generate_series(1, {count}) g"
            f" on conflict (id) do update set v = 'again {self._fresh}'"
        )
        if self._pick.random() < 0.5:
            self._do("delete from w where id > 40")

    def _ddl(self) -> None:
        """One client alone adds columns, up to a limit."""
        if self._lane:
            return
        row = self._session.execute(b"select count(*) from pg_attribute where attrelid = 'w'::regclass and attnum > 0")
        number = row.fetchall()[0][0]
        if number < _MOST_COLUMNS:
            with self._session.transaction():
                self._do("set local lock_timeout = '500ms'", f"alter table w add column c{number} text")
                self._do(f"insert into w (id, v, c{number}) values ({self._key() % 40}, 'new', 'first')"
                         f" on conflict (id) do update set c{number} = 'later'")  # fmt: skip

    def _truncated(self) -> None:
        self._do(f"truncate {self._pick.choice(('t', 'f', 'p', 'x', 'd, p', 'i, w'))}")

    def _key(self) -> int:
        return self._pick.randrange(1, 400)

    def _aborted(self) -> str:
        wide, key = self._pick.choice(("t", "f")), self._key()
        return self._pick.choice(
            (
                f"insert into {wide} values ({self._fresh + 7_000_000}, '{ABORTED}', '{ABORTED}', 0)",
                f"update {wide} set v = '{ABORTED}' where id between {key} and {key} + 10",
                f"update p set v = '{ABORTED}' where id = {key}",
            )
        )

    def _statement(self) -> str:
        key, other = self._key(), self._key()
        wide = self._pick.choice(("t", "f"))
        return self._pick.choice(
            (
                f"insert into {wide} select {key} + g, 'v', repeat(md5(g::text), 100), g from generate_series(0, 9) g"
                " on conflict (id) do update set v = 'again'",
                f"update {wide} set n = n + 1 where id between {key} and {key} + 15",
                f"update {wide} set big = repeat(md5('{key}'), 100) where id = {key}",
                f"delete from {wide} where id between {key} and {key} + 2",
                f"update {wide} set id = id + 1000 where id = {key}"
                f" and not exists (select from {wide} where id = {key} + 1000)",
                f"delete from {wide} where id between 1001 and 9999",
                f"delete from {wide} where id = {key}; insert into {wide} values ({key}, 'new', 'b', 0)",
                f"insert into {wide} values ({key + 5000}, 'gone', 'g', 0) on conflict do nothing;"
                f" delete from {wide} where id = {key + 5000}",
                f"insert into i values ({key}, 'i', repeat('x', 3000), {key} + 1000) on conflict do nothing",
                f"update i set v = 'u{other}' where id = {key}",
                f"update i set code = {other} + 2000 where id = {key}"
                f" and not exists (select from i where code = {other} + 2000)",
                f"delete from i where id = {key}",
                f"update d set v = 'u{other}' where id % 7 = {key % 7}",
                f"insert into p values ({key}, 'p') on conflict (id) do update set v = 'q{other}'",
                f"update p set id = {other} where id = {key} and not exists (select from p where id = {other})",
                f"delete from p where id = {key}",
                f"insert into w (id, v) values ({key % 40}, 'w') on conflict (id) do update set v = 'w{other}'",
                f'insert into "Upper" values ({key % 50}, \'up\') on conflict ("Id") do update set'
                f' "weird, ""name" = \'o{other}\'',
                f'delete from "Upper" where "Id" = {key % 50}',
            )
        )


class Load:
    """Several clients at once, in threads, until the context ends; each rests for ``pause_s`` between two transactions.

    They live through a server that goes away.
    """

    def __init__(self, dsn: str, seed: int, clients: int = 3, pause_s: float = 0.01) -> None:
        self._pause_s = pause_s
        self._dsn = dsn
        self._stop = threading.Event()
        self._done: Counter[str] = Counter()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}-{lane}"), lane), daemon=True)
            for lane in range(clients)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        settle_prepared(self._dsn)
        if self._error is not None:
            raise self._error

    @property
    def transactions(self) -> int:
        """Committed, rolled back on purpose, or given up: all that were tried."""
        return self._done.total()

    @property
    def kinds(self) -> Mapping[str, int]:
        return dict(self._done)

    def _run(self, pick: random.Random, lane: int) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as session:
                    session.execute("set deadlock_timeout = '50ms'")
                    session.execute("set lock_timeout = '2s'")
                    client = Client(session, pick, lane)
                    while not self._stop.wait(self._pause_s):
                        self._done[client.transact()] += 1
            except psycopg.OperationalError:
                SYSTEM_CLOCK.sleep(0.1)
            except BaseException as error:
                self._error = error
                return


def settle_prepared(dsn: str) -> None:
    """Commit what was prepared by a client that did not come back; its rollbacks have the word in them."""
    with psycopg.connect(dsn, autocommit=True) as session:
        rows = session.execute("select gid from pg_prepared_xacts where database = current_database()").fetchall()
        for (gid,) in rows:
            session.execute(f"rollback prepared '{gid}'".encode())


def make(dsn: str, statements: Iterable[str] = SCHEMA) -> None:
    """Make the tables, with some rows in them."""
    with psycopg.connect(dsn, autocommit=True) as session:
        for statement in statements:
            session.execute(statement.encode())
