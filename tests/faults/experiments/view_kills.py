"""SIGKILL of the runner of views, of capture and of the broker, and states that are deleted or fall back to a copy.

One seed is one shop with three views, under changes, TRUNCATE, added columns and tables that are read again. Twenty
times something is killed at a random moment and started again. At each pause the views' topics are compared with the
very texts, run by Postgres. Beside that every record of the topics is looked at, whenever it was written: a document
whose total is not that of its lines, or a sum of all accounts that a transfer has changed, was never true.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import orjson
import psycopg

from cdc.process.clock import SYSTEM_CLOCK
from cdc.wiring.pipeline import build_snapshot
from connectors.kafka.compacted_topic import read_range
from connectors.views.view_topics import known_views
from snapshot.source.ports import NoReport
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life, command
from tests.faults.rig import Rig, fresh_rig
from tests.waiting import wait_until

KILLS = 20
BETWEEN = 4
"""Kills between two pauses."""
VIEWS = True
"""It defines views, so what they reach counts."""
_LEVEL_S = 240.0
_ACCOUNTS, _EACH = 20, 100
_SHOP = (
    "create table customers (id int primary key, name text not null, city text)",
    "create table orders (id int primary key, customer_id int, status text not null)",
    "create table lines (id int primary key, order_id int, qty int not null, price numeric not null)",
    "create table accounts (id int primary key, balance int not null)",
    "insert into customers select g, 'c' || g, 'city' || g % 3 from generate_series(1, 20) g",
    "insert into orders select g, 1 + g % 22, 'open' from generate_series(1, 120) g",
    "insert into lines select g, 1 + g % 125, g % 5, g * 0.10 from generate_series(1, 400) g",
    f"insert into accounts select g, {_EACH} from generate_series(1, {_ACCOUNTS}) g",
)
_TEXTS = {
    "documents": """select o.id, o.status, json_build_object('name', c.name, 'city', c.city) as customer,
      (select json_agg(json_build_object('id', l.id, 'worth', l.qty * l.price) order by l.id)
         from lines l where l.order_id = o.id) as lines,
      (select sum(l.qty * l.price) from lines l where l.order_id = o.id) as total
    from orders o left join customers c on c.id = o.customer_id where o.status <> 'draft'""",
    "cities": """select c.city, count(*) as orders, sum(l.qty) as pieces, max(l.price) as dearest
    from lines l join orders o on o.id = l.order_id left join customers c on c.id = o.customer_id group by 1""",
    "bank": "select count(*) as accounts, sum(a.balance) as money from accounts a",
}


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for seed in lab.seeds():
        one(lab, seed, KILLS)


def one(lab: Lab, seed: int, kills: int, *, broker: bool = True) -> None:
    """One shop, so many kills. ``broker``: it may be killed, too."""
    pick = random.Random(seed)
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}) as rig:
        state = rig.folder / "state"
        for name, text in _TEXTS.items():
            (rig.folder / f"{name}.sql").write_text(text, encoding="utf-8")
        rig.document["views"] = {name: {"sql": str(rig.folder / f"{name}.sql"), "state": str(state)} for name in _TEXTS}
        rig.init(*_SHOP)
        build_snapshot(rig.settings, NoReport(), workers=1).run()
        shop = _Shop(lab, rig, pick, state, broker=broker)
        shop.start("capture")
        shop.start("runner")
        for _ in range(0, kills, BETWEEN):
            with _changing(rig.dsn, seed) as transactions:
                for _ in range(BETWEEN):
                    SYSTEM_CLOCK.sleep(pick.uniform(0.2, 2.5))
                    shop.strike()
                    if pick.random() < 0.3:
                        shop.odd()
            lab.count(transactions=transactions[0])
            shop.all_up()
            shop.compare()


class _Shop:
    """The shop's capture and its runner of views."""

    def __init__(self, lab: Lab, rig: Rig, pick: random.Random, state: Path, *, broker: bool) -> None:
        self._weights = (8, 3, int(broker), 2)
        self._lab = lab
        self._rig = rig
        self._pick = pick
        self._state = state
        self._lives: dict[str, Life] = {}
        self._read: dict[tuple[str, int], int] = {}
        self._newest: dict[str, dict[bytes, Any]] = {name: {} for name in _TEXTS}
        self._columns = 0

    def start(self, name: str) -> None:
        """Start a part. The runner may begin before there is a broker, and is started again then."""
        if name == "broker":
            self._lab.stack.start_part("kafka")
            self._lab.stack.ensure("kafka")
        elif name == "capture":
            self._lives[name] = self._rig.start()
        else:
            argv = ["--config", str(self._rig.config), "view", "run"]
            life = Life(command, argv, self._rig.folder / "views.err")
            self._rig.lives.append(life)
            self._lives[name] = life

    def strike(self) -> None:
        """Kill one part or two, and start them again. A runner may find its state gone, or as it was."""
        chosen = self._pick.choices((["runner"], ["capture"], ["broker"], ["runner", "capture"]), self._weights)[0]
        for name in chosen:
            if name == "broker":
                self._lab.stack.stop_part("kafka", kill=True)
            else:
                self._lives[name].kill()
            self._lab.count(kills=1, **{f"{name}_killed": 1})
        if "runner" in chosen:
            self._fall_back()
        SYSTEM_CLOCK.sleep(self._pick.uniform(0, 1))
        for name in chosen:
            self.start(name)

    def _fall_back(self) -> None:
        """The state of a runner that is gone: kept, copied, put back or deleted."""
        copy = self._rig.folder / "copy"
        what = self._pick.choices(("kept", "copied", "put back", "deleted"), (6, 2, 2, 1))[0]
        if what == "copied" and self._state.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self._state, copy)
        elif what == "put back" and copy.is_dir():
            shutil.rmtree(self._state, ignore_errors=True)
            shutil.copytree(copy, self._state)
        elif what == "deleted":
            shutil.rmtree(self._state, ignore_errors=True)
        self._lab.count(**{f"states_{what.replace(' ', '_')}": 1})

    def odd(self) -> None:
        """TRUNCATE of a child, a column more, or a table read again."""
        what = self._pick.choice(("truncate", "column", "reading"))
        if what == "truncate":
            self._rig.execute("truncate lines")
        elif what == "column":
            self._columns += 1
            self._rig.execute(f"alter table customers add more{self._columns} text default 'x'")
        else:
            argv = ["--config", str(self._rig.config), "snapshot", self._pick.choice(("public.lines", "public.orders"))]
            asked = Life(command, argv, self._rig.folder / "asked.err")
            self._rig.lives.append(asked)
        self._lab.count(**{f"odd_{what}": 1})

    def all_up(self) -> None:
        """Start again what ended for a reason that passes, as a service's keeper would. Found for any other."""
        self._lab.stack.ensure("kafka", "postgres")
        for name, life in list(self._lives.items()):
            if life.exit is not None:
                if life.exit not in (69, 83):
                    raise Found(f"{name} ended with {life.exit}: {life.stderr[-2000:]}")
                self._lab.count(**{f"{name}_ended_by_itself": 1})
                self.start(name)

    def compare(self) -> None:
        """Wait until every view claims what is committed now, and compare the topics with Postgres."""
        lsn = int(self._rig.one("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
        wait_until(lambda: self._claimed() >= lsn, _LEVEL_S, self._words)
        self._follow()
        for name, text in _TEXTS.items():
            said, shown = _said(self._rig.dsn, text), sorted(map(_canonical, self._newest[name].values()))
            self._lab.count(documents_compared=len(said), pauses=1)
            if said != shown:
                wrong = [row for row in shown if row not in said][:3]
                lacking = [row for row in said if row not in shown][:3]
                raise Found(f"the view {name} shows {wrong}, and Postgres says {lacking} ({len(shown)}, {len(said)})")

    def _claimed(self) -> int:
        self.all_up()
        found = known_views(self._rig.settings).progress
        return min((found[name].lsn if name in found else 0) for name in _TEXTS)

    def _words(self) -> str:
        return self._lives["runner"].stderr[-2000:] + self._lives["capture"].stderr[-1000:]

    def _follow(self) -> None:
        """Every record since the last look, each of which has to be true by itself."""
        settings = self._rig.settings
        for name, view in known_views(settings).known.items():
            for partition in range(view.partitions):
                for message in read_range(settings.log, view.topic, partition, self._read.get((name, partition))):
                    key, value, offset = message.key(), message.value(), message.offset()
                    assert isinstance(key, bytes)
                    assert offset is not None
                    self._read[name, partition] = offset + 1
                    found = orjson.loads(value) if isinstance(value, bytes) else {"after": None}
                    if found.get("sweep"):
                        continue  # No later document lies below it, and what it removes is deleted beside it.
                    after = found["after"]
                    if after is None:
                        self._newest[name].pop(key, None)
                    else:
                        _require_true(name, after)
                        self._newest[name][key] = after
                    self._lab.count(records_looked_at=1)


def _require_true(name: str, row: Mapping[str, Any]) -> None:
    """Found for a document that no state of the tables has."""
    if name == "bank" and (row["accounts"], row["money"]) != (_ACCOUNTS, _ACCOUNTS * _EACH):
        raise Found(f"a transfer shows by half: {row}")
    if name == "documents":
        lines = orjson.loads(row["lines"]) if isinstance(row["lines"], str) else row["lines"]
        worth = None if lines is None else sum(round(float(line["worth"]) * 100) for line in lines)
        total = None if row["total"] is None else round(float(row["total"]) * 100)
        if worth != total:
            raise Found(f"a document's total is not that of its lines: {row}")


def _said(dsn: str, text: str) -> list[bytes]:
    """What Postgres says now."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set timezone to utc")
        found = conn.execute(f"select row_to_json(v)::text from ({text}) v".encode()).fetchall()
    return sorted(_canonical(orjson.loads(row)) for (row,) in found)


def _canonical(row: Mapping[str, Any]) -> bytes:
    """A row in one form: JSON within it is JSON, and numbers are compared by value."""
    return orjson.dumps({name: _plain(value) for name, value in row.items()}, option=orjson.OPT_SORT_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in "[{":
        value = orjson.loads(value)
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(member) for member in value]
    try:
        return round(float(value), 6) if isinstance(value, (str, int, float)) else value
    except ValueError:
        return value


@contextmanager
def _changing(dsn: str, seed: int) -> Iterator[list[int]]:
    """Changes by one session until the block ends. The list has how many were committed."""
    done, ending, chance = [0], Event(), random.Random(seed)

    def change() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not ending.wait(0.02):
                with conn.transaction():
                    for _ in range(chance.randint(1, 3)):
                        conn.execute(_change(chance).encode())
                done[0] += 1

    thread = Thread(target=change, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        ending.set()
        thread.join(30)


def _change(chance: random.Random) -> str:
    """One change. Money is moved and never made."""
    order, line, customer = chance.randint(1, 130), chance.randint(1, 450), chance.randint(1, 24)
    one, two = chance.sample(range(1, _ACCOUNTS + 1), 2)
    return chance.choice(
        [
            f"update orders set customer_id = {customer} where id = {order}",
            f"update orders set status = '{chance.choice(('draft', 'open', 'paid'))}' where id = {order}",
            f"delete from orders where id = {order}",
            f"insert into orders values ({order}, {customer}, 'new') on conflict do nothing",
            f"update lines set order_id = {order}, qty = {chance.randint(0, 5)} where id = {line}",
            f"delete from lines where id = {line}",
            f"insert into lines values ({line}, {order}, 2, 9.50) on conflict do nothing",
            f"update customers set name = 'x{chance.randint(1, 99)}', city = 'city{chance.randint(1, 4)}'"
            f" where id = {customer}",
            f"update accounts set balance = balance + case id when {one} then 1 else -1 end where id in ({one}, {two})",
        ]
    )
