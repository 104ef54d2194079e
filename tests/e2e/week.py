"""A shop for the scripted week: its database, the application that writes all the time, and its processes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psycopg
import tomlkit
from psycopg import sql

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit
from tests.programs import RunCdc, Spawn, Spawned
from tests.settings_file import write_settings
from tests.waiting import wait_until

PASSWORD = "of-the-week"
READY_S, SETTLED_S = 240.0, 180.0
SCHEMA = """
create type state as enum ('open', 'paid', 'shipped');
create table customers (id int primary key, name text not null, city text);
create table products (sku varchar(12) primary key, name text, price money);
create table orders (
    id int primary key, customer_id int, status state, note jsonb, placed date, opens time, takes interval);
create table order_lines (order_id int, n int, sku text, qty int, price numeric, primary key (order_id, n));
create table switches (bits bit varying primary key, n int);
create table meetings (at timetz, rooms int[], n int, primary key (at, rooms));
create table visits (id int, at date, n int, primary key (at, id)) partition by range (at);
create table visits_2026_11 partition of visits for values from ('2026-11-01') to ('2026-12-01');
create table leaflets (id int primary key, body text);
insert into customers select g, 'n' || g, 'c' || g % 5 from generate_series(1, 50) g;
insert into products select 'p' || g, 'product', g::text::money from generate_series(1, 20) g;
insert into orders select g, 1 + g % 50, 'open', '{"a": 1}', '1950-04-11', '08:00', '9h30m'
    from generate_series(1, 300) g;
insert into order_lines select g, n, 'p' || (1 + g % 20), n, 1.10
    from generate_series(1, 300) g, generate_series(1, 3) n;
insert into switches values (B'', 1), (B'0', 2), (B'00', 3), (B'1', 4), (B'10', 5);
insert into meetings values ('10:00+02', '{1,2}', 1), ('08:00+00', '{1,2}', 2), ('08:00+00', '[0:1]={1,2}', 3);
insert into visits select g, '2026-11-01'::date + g % 30, g from generate_series(1, 200) g;
insert into leaflets select g, 'leaflet' from generate_series(1, 20) g;
"""
ORDER_PAGE = """
select o.id, o.status, o.note, json_build_object('id', c.id, 'name', c.name) as customer,
  (select json_agg(json_build_object('n', l.n, 'sku', l.sku, 'qty', l.qty) order by l.n)
     from order_lines l where l.order_id = o.id) as lines
from orders o left join customers c on c.id = o.customer_id
"""


class Application:
    """Sessions of a shop that never closes: it writes until the end of the ``with``, whatever happens."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="application")
        self.transactions = 0
        self.fault: Exception | None = None

    def __enter__(self) -> Application:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _write(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as session:
                while not self._end.is_set():
                    self.transactions += 1
                    self._trade(session, self.transactions)
                    SYSTEM_CLOCK.sleep(0.5)
        except psycopg.Error as error:
            self.fault = error

    @staticmethod
    def _trade(session: psycopg.Connection[Any], number: int) -> None:
        order = number % 300 + 1
        with session.transaction():
            session.execute(
                "update orders set status = 'paid', customer_id = %s where id = %s", [order % 50 + 1, order]
            )
            session.execute("update order_lines set qty = qty + 1 where order_id = %s", [order])
            session.execute("delete from switches where bits = B'00'")
            session.execute("insert into switches values (B'00', %s)", [number])
            session.execute("update meetings set n = %s where at = '08:00+00' and rooms = '[0:1]={1,2}'", [number])
            session.execute("update customers set name = %s where id = %s", [f"n{number}", order % 50 + 1])
            session.execute("update visits set n = n + 1 where id = %s", [order])


@dataclass
class Shop:
    """The pipeline's folder, as ``cdc config new`` left it, and what runs of it."""

    folder: Path
    owner: str
    name: str
    role: str
    run_cdc: RunCdc
    spawn: Spawn
    document: dict[str, Any] = field(default_factory=dict)
    processes: dict[str, Spawned] = field(default_factory=dict)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"CDC_SOURCE_PASSWORD": PASSWORD}

    def sql(self, *statements: str) -> None:
        """As the owner, each by itself."""
        with psycopg.connect(self.owner, autocommit=True) as session:
            for statement in statements:
                session.execute(statement.encode())

    def propose(self, *arguments: str) -> None:
        """Settings and rights by ``cdc config new``, and the rights run by the owner, as the README says."""
        done = self.run_cdc("config", "new", "--dsn", self.owner, "--role", self.role, *arguments, cwd=self.folder)
        assert done.returncode == Exit.OK, done.stderr
        rights = (self.folder / "cdc-rights.sql").read_bytes()
        with psycopg.connect(self.owner, autocommit=True) as session:
            session.execute(rights)
            session.execute(sql.SQL("alter role {} password {}").format(sql.Identifier(self.role), PASSWORD))
        self.document = tomlkit.parse((self.folder / "cdc.toml").read_text(encoding="utf-8")).unwrap()

    def cdc(self, *arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A command with the settings as the document has them now. No traceback, whatever it is."""
        config = write_settings(self.folder, self.document)
        done = self.run_cdc("--config", config, *arguments, timeout_s=timeout_s, env=self.environment, cwd=self.folder)
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def good(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """A command that has to succeed; its stdout."""
        done = self.cdc(*arguments, timeout_s=timeout_s)
        assert done.returncode == Exit.OK, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, command: str) -> None:
        """One of the pipeline's processes, with the settings of now."""
        config = write_settings(self.folder, self.document)
        self.processes[command] = self.spawn("cdc", "--config", config, *command.split(), env=self.environment)

    def restart(self, command: str) -> None:
        """As a service manager does after the settings changed."""
        code = self.processes[command].terminate(120)
        assert code == Exit.OK, self.processes[command].stderr[-2000:]
        self.start(command)

    def alive(self) -> None:
        """No process has ended: nothing of this week may end one."""
        for command, process in self.processes.items():
            assert process.process.poll() is None, f"cdc {command} ended: {process.stderr[-3000:]}"

    def status(self) -> tuple[int, dict[str, Any]]:
        """Its exit code and document."""
        done = self.cdc("status", "--json")
        return done.returncode, orjson.loads(done.stdout) if done.stdout else {}

    def green(self) -> None:
        """Wait until ``cdc status`` ends with 0, every store is consistent and no table is set aside. All processes
        run."""
        wait_until(self._green, SETTLED_S, self._shown)
        self.alive()

    def _green(self) -> bool:
        code, shown = self.status()
        states = {sink["state"] for sink in shown["sinks"].values()} if code == Exit.OK else set()
        return states == {"consistent"} and not shown["tables"]["others"]

    def equal(self, *sinks: str) -> None:
        """Every row of the source against every store."""
        done = self.cdc("verify", *sinks, "--timeout", "300", timeout_s=300)
        assert done.returncode == Exit.OK, done.stdout + done.stderr

    def says(self, command: tuple[str, ...], *words: str) -> str:
        """Wait until a command's output has all the words."""

        def shown() -> str:
            done = self.cdc(*command)
            text = " ".join((done.stdout + done.stderr).split())
            return text if all(word in text for word in words) else ""

        return wait_until(shown, SETTLED_S, lambda: f"{command} never said {words}: {self._shown()}")

    def _shown(self) -> str:
        done = self.cdc("status")
        last = {command: process.stderr[-800:] for command, process in self.processes.items()}
        return f"{done.stdout}{done.stderr}{last}"
