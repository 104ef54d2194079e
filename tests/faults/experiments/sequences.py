"""Sequences that Hypothesis makes up, on real servers against a dict: SQL, DDL, later snapshots, kills and restarts.

One seed is one pipeline and ten sequences of up to fifteen steps; a sequence that fails is made shorter first. The
dict knows what each committed step leaves in each table, rows that only a rewrite or a default filled included.
After each sequence the topics alone have to give exactly that, and at the end of the seed every law is looked at.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import orjson
import psycopg
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from cdc.state import FormState, RequestState, find_all
from cdc.topic import TableName
from cdc.wiring import open_state
from tests.faults import oracle
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life, command
from tests.faults.rig import Rig, fresh_rig
from tests.waiting import wait_until

SEQUENCES, STEPS = 10, 15
SCHEMA = (
    "create table a (id int primary key deferrable, v text, n bigint, big text)",
    "alter table a alter big set storage external",
    "alter table a replica identity full",
    "create table b (id int primary key, v text, n bigint, big text)",
    "alter table b alter big set storage external",
)
_QUIET_S = 60.0
_MOST_ADDED = 4
_FORM = """
select (select coalesce(json_agg(json_build_array(attnum, attname) order by attnum), '[]') from pg_attribute
        where attrelid = c.oid and attnum > 0 and not attisdropped),
       pg_relation_filenode(c.oid)
from pg_class c where c.oid = %s::regclass
"""

Row = dict[str, Any]
Table = Literal["a", "b"]


class Change(NamedTuple):
    """One statement on one row: ``move`` takes the row of ``key`` to ``other``."""

    what: Literal["put", "touch", "swell", "delete", "move"]
    key: int
    other: int

    def sql(self, table: Table) -> str:
        match self.what:
            case "put":
                return (
                    f"insert into {table} (id, v, n, big) select {self.key}, 'v{self.other}', {self.other}, 'small'"
                    f" where not exists (select from {table} where id = {self.key})"
                )
            case "touch":
                return f"update {table} set v = 'w{self.other}' where id = {self.key}"
            case "swell":
                return f"update {table} set big = repeat('{self.other}.', 4000) where id = {self.key}"
            case "delete":
                return f"delete from {table} where id = {self.key}"
            case "move":
                free = f"not exists (select from {table} where id = {self.other})"
                return f"update {table} set id = {self.other} where id = {self.key} and {free}"

    def on(self, rows: dict[int, Row], added: Mapping[str, str]) -> None:
        """The same on the dict."""
        match self.what:
            case "put" if self.key not in rows:
                rows[self.key] = {
                    "id": self.key, "v": f"v{self.other}", "n": self.other, "big": "small", **added
                }  # fmt: skip
            case "touch" if self.key in rows:
                rows[self.key]["v"] = f"w{self.other}"
            case "swell" if self.key in rows:
                rows[self.key]["big"] = f"{self.other}." * 4000
            case "delete":
                rows.pop(self.key, None)
            case "move" if self.key in rows and self.other not in rows:
                rows[self.other] = rows.pop(self.key) | {"id": self.other}


_TABLES = st.sampled_from(("a", "b"))
_KINDS = st.sampled_from(("put", "put", "touch", "swell", "delete", "move"))
_CHANGES = st.lists(st.builds(Change, _KINDS, st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6)


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for number in lab.seeds():
        one(lab, number, SEQUENCES)


def one(lab: Lab, number: int, sequences: int) -> None:
    """One pipeline, so many sequences."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}, snapshot={"watch": "300ms"}) as rig:
        rig.prepare(*SCHEMA)
        machine = seed(number)(type("OnThis", (Sequence,), {"rig": rig, "lab": lab}))
        limits = settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=limits)
        rig.judge(lab)


class Sequence(RuleBasedStateMachine):
    """Begins with empty tables on the pipeline of the sequence before it."""

    rig: ClassVar[Rig]
    lab: ClassVar[Lab]

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, dict[int, Row]] = {"a": {}, "b": {}}
        self.added: dict[str, dict[str, str]] = {"a": {}, "b": {}}
        self.read_again = False

    @initialize()
    def empty(self) -> None:
        for table in self.rows:
            columns = [name for _, name in _form(self.rig, table)[0]]
            self.rig.execute(f"delete from {table}", *(f"alter table {table} drop column {c}" for c in columns[4:]))

    @rule(table=_TABLES, changes=_CHANGES, end=st.sampled_from(("commit", "commit", "rollback", "savepoint")))
    def transact(self, table: Table, changes: list[Change], end: str) -> None:
        rows = copy.deepcopy(self.rows[table])
        kept = len(changes) // 2 if end == "savepoint" else 0 if end == "rollback" else len(changes)
        with self.rig.session() as session:
            session.execute("begin")
            for number, change in enumerate(changes):
                if number == kept:
                    session.execute("savepoint here")
                session.execute(change.sql(table).encode())
                if number < kept:
                    change.on(rows, self.added[table])
            if end == "savepoint":
                session.execute("rollback to savepoint here")
            session.execute("rollback" if end == "rollback" else "commit")
        self.rows[table] = rows
        self.lab.count(transactions=1)

    @rule(table=_TABLES)
    def truncate(self, table: Table) -> None:
        self.rig.execute(f"truncate {table}")
        self.rows[table] = {}

    @precondition(lambda self: min(map(len, self.added.values())) < _MOST_ADDED)
    @rule(table=_TABLES, number=st.integers(0, 99))
    def add_column(self, table: Table, number: int) -> None:
        name = f"c{len(_form(self.rig, table)[0])}_{number}"
        if name in self.added[table]:
            return
        self.rig.execute(f"alter table {table} add column {name} text default 'd{number}'")
        self.added[table][name] = f"d{number}"
        for row in self.rows[table].values():
            row[name] = f"d{number}"

    @precondition(lambda self: any(self.added.values()))
    @rule()
    def drop_column(self) -> None:
        table = next(table for table, added in self.added.items() if added)
        name, _ = self.added[table].popitem()
        self.rig.execute(f"alter table {table} drop column {name}")
        for row in self.rows[table].values():
            del row[name]

    @rule(table=_TABLES)
    def rewrite(self, table: Table) -> None:
        self.rig.execute(f"alter table {table} alter n type bigint using n + 1")
        for row in self.rows[table].values():
            row["n"] += 1

    @rule(table=_TABLES)
    def read_a_table_again(self, table: Table) -> None:
        argv = ["--config", str(self.rig.config), "snapshot", f"public.{table}", "--detach"]
        asked = Life(command, argv, self.rig.folder / "again.err")
        if asked.wait(60) != 0:
            raise Found(f"cdc snapshot --detach ended with {asked.exit}: {asked.stderr}")
        self.lab.count(snapshots=1)

    @precondition(lambda self: _alive(self.rig))
    @rule()
    def kill(self) -> None:
        self.rig.lives[-1].kill()
        self.lab.count(kills=1)

    @precondition(lambda self: _alive(self.rig))
    @rule()
    def stop(self) -> None:
        if self.rig.lives[-1].stop() != 0:
            raise Found(f"cdc run did not stop in order: {self.rig.last_words()}")

    @precondition(lambda self: not _alive(self.rig))
    @rule()
    def start(self) -> None:
        self.rig.start()

    def teardown(self) -> None:
        """Everything quiet; then the topics give what the dict has."""
        if not _alive(self.rig):
            self.rig.start()
        wait_until(lambda: _seen(self.rig), _QUIET_S, self.rig.last_words)
        self.rig.settle()
        memory = oracle.replayed(oracle.read_log(self.rig.settings), self.rig.settings)
        for table, wanted in self.rows.items():
            stored = memory.table(TableName("public", table)).values()
            found = {row["id"]: row for row in (orjson.loads(one.row) for one in stored if one.row is not None)}
            if found != wanted:
                raise Found(f"{table}: the topics give {_short(found)}, and the dict has {_short(wanted)}")
        self.lab.count(sequences=1)


def _alive(rig: Rig) -> bool:
    return bool(rig.lives) and rig.lives[-1].exit is None


def _form(rig: Rig, table: str) -> tuple[list[tuple[int, str]], int]:
    """The table's columns, number and name each, and its file."""
    with rig.session() as session:
        row = session.execute(_FORM, [f"public.{table}"]).fetchone()
    assert row is not None
    return [(number, name) for number, name in row[0]], row[1]


def _seen(rig: Rig) -> bool:
    """Whether the watch has seen the tables as they are, and all that it asked for was read."""
    if not _alive(rig):
        raise Found(f"cdc run ended by itself: {rig.last_words()}")
    try:
        held = open_state(rig.settings).read()
    except psycopg.Error:
        return False
    forms = {form.table: form for form in find_all(held, FormState)}
    for table in ("a", "b"):
        form = forms.get(f"public.{table}")
        columns, filenode = _form(rig, table)
        if form is None or [(c[0], c[1]) for c in form.columns] != columns or form.leaves[0][3] != filenode:
            return False
    return not find_all(held, RequestState)


def _short(rows: Mapping[int, Row]) -> str:
    return str({key: {n: v[:20] if isinstance(v, str) else v for n, v in row.items()} for key, row in rows.items()})
