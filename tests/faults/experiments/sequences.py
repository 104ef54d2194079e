"""Sequences that Hypothesis makes up, on real servers against a dict: SQL, DDL, later snapshots, kills and restarts.

One seed is one pipeline and twenty sequences of up to twelve steps. The dict knows what each committed step leaves in
each table, rows included that only a rewrite or a default filled. After each sequence the topics alone have to give
exactly that, and at the end of the seed every law is looked at. What a step may be follows from the steps before it
and from nothing else: whether a process still lives is a thing to find out, never a condition.
"""

from __future__ import annotations

import copy
import signal
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import orjson
import psycopg
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.state import FormState, RequestState, find_all
from cdc.record.tables_aside import asides_of
from cdc.record.topic_names import TableName
from cdc.wiring import open_state
from tests.faults import oracle
from tests.faults.lab import Found, Lab
from tests.faults.lives import Life, command
from tests.faults.rig import Rig, fresh_rig
from tests.faults.row_changes import ALTERED, CHANGES, TRANSACTIONS, Change, Row, Rows, Transaction
from tests.waiting import wait_until

SEQUENCES, STEPS = 20, 12
SCHEMA = (
    "create table a (id int primary key deferrable, v text, n bigint, big text)",
    "alter table a alter big set storage external",
    "alter table a replica identity full",
    "create type mood as enum ('calm', 'loud')",
    "create table b (id int primary key, v text, n bigint, big text, mood mood default 'calm')",
    "alter table b alter big set storage external",
    # Nothing but rows ever changes in it: what a transaction holds open would keep DDL waiting.
    "create table late (id int primary key, v text, n bigint, big text)",
)
TABLES = ("a", "b", "late")
_QUIET_S = 60.0
_COLUMNS = {"a": 4, "b": 5, "late": 4}
_MOST_ADDED = 4
_FORM = """
select (select json_agg(json_build_array(attnum, attname) order by attnum) from pg_attribute
        where attrelid = c.oid and attnum > 0 and not attisdropped),
       pg_relation_filenode(c.oid),
       (select string_agg(r.xmin::text, ',') from pg_publication_rel r where r.prrelid = c.oid),
       (select coalesce(array_agg(distinct e.xmin::text), '{}') from pg_enum e
        join pg_attribute a on a.atttypid = e.enumtypid and a.attrelid = c.oid)
from pg_class c where c.oid = %s::regclass
"""

_LABEL = "select enumlabel from pg_enum where enumtypid = 'mood'::regtype order by enumsortorder limit 1"
_PUBLISHED = "select tablename from pg_publication_tables where pubname = %s"


class Form(NamedTuple):
    """A table as it is now: its columns, number and name each, its file, the transaction that published it, those that
    named the labels of its enums."""

    columns: list[tuple[int, str]]
    file: int
    published: str
    labels: set[str]

    def is_in(self, form: FormState | None) -> bool:
        """Whether the watch saw this."""
        return (
            form is not None
            and [(column[0], column[1]) for column in form.columns] == self.columns
            and form.leaves[0][3] == self.file
            and f"/{self.published}" in form.entries
            and self.labels <= {str(transaction) for transaction in form.types.values()}
        )


def run(lab: Lab) -> None:
    """Seeds until the time is over."""
    for number in lab.seeds():
        one(lab, number, SEQUENCES, Sequence)


def one(lab: Lab, number: int, sequences: int, kind: type[Sequence]) -> None:
    """One pipeline, so many sequences."""
    with fresh_rig(lab, log={"min_compaction_lag": "1h"}, snapshot={"watch": "200ms"}) as rig:
        rig.prepare(*SCHEMA)
        with rig.session() as session, psycopg.connect(rig.dsn) as late:
            held = {"rig": rig, "lab": lab, "session": session, "late": late}
            machine = seed(number)(type("OnThis", (kind,), held))
            limits = settings(
                max_examples=sequences,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                # A shorter sequence would cost minutes, and its steps are in the error.
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            )
            try:
                run_state_machine_as_test(machine, settings=limits)
            except FlakyFailure as flaky:
                # The same steps went well the second time: what happened the first time is what counts.
                raise flaky.exceptions[0] from None
        rig.judge(lab)


class Sequence(RuleBasedStateMachine):
    """Begins with empty tables and a running capture, on the pipeline of the sequence before it.

    ``up``: whether the capture was left running. ``later``: what the open transaction will have left.
    ``unpublished``: the table that was taken out of the publication.
    """

    rig: ClassVar[Rig]
    lab: ClassVar[Lab]
    session: ClassVar[psycopg.Connection[Any]]
    late: ClassVar[psycopg.Connection[Any]]

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, Rows] = {table: {} for table in TABLES}
        self.added: dict[str, dict[str, str]] = {table: {} for table in TABLES}
        self.names = 0
        self.up = True
        self.later: Rows | None = None
        self.unpublished = ""
        self.steps: list[str] = []
        self.held = True
        """Whether no step has found anything yet."""

    @initialize()
    def empty(self) -> None:
        self.late.rollback()
        if not (self.rig.lives and self.rig.lives[-1].exit is None):
            self.rig.start()
        self.publish_again()
        for table in TABLES:
            self._do(f"delete from {table}")
            for name in self._names(table)[_COLUMNS[table] :]:
                self._do(f"alter table {table} drop column {name}")
        self.steps.clear()

    @rule(transactions=TRANSACTIONS)
    def transact(self, transactions: list[Transaction]) -> None:
        for transaction in transactions:
            self._do(*transaction.sql())
            for change in transaction.changes[: transaction.kept]:
                self._note(change, transaction.table)
        self.lab.count(transactions=len(transactions))

    @precondition(lambda self: self.later is None)
    @rule(changes=CHANGES)
    def begin_late(self, changes: list[Change]) -> None:
        self.later = copy.deepcopy(self.rows["late"])
        for change in changes:
            self.steps.append(f"late: {change.sql('late')}")
            self.late.execute(change.sql("late").encode())
            change.on(self.later, {})

    @precondition(lambda self: self.later is not None)
    @rule(keep=st.booleans())
    def end_late(self, keep: bool) -> None:
        assert self.later is not None
        self.steps.append(f"late: {'commit' if keep else 'rollback'}")
        if keep:
            self.late.commit()
            self.rows["late"] = self.later
        else:
            self.late.rollback()
        self.later = None

    @rule(table=ALTERED)
    def truncate(self, table: str) -> None:
        self._do(f"truncate {table}")
        self.rows[table] = {}

    @precondition(lambda self: min(len(self.added[table]) for table in ("a", "b")) < _MOST_ADDED)
    @rule(table=ALTERED)
    def add_column(self, table: str) -> None:
        self.names += 1
        name, value = f"c{self.names}", f"d{self.names}"
        self._do(f"alter table {table} add column {name} text default '{value}'")
        self.added[table][name] = value
        for row in self.rows[table].values():
            row[name] = value

    @precondition(lambda self: any(self.added.values()))
    @rule()
    def drop_column(self) -> None:
        table = next(table for table, added in self.added.items() if added)
        name, _ = self.added[table].popitem()
        self._do(f"alter table {table} drop column {name}")
        for row in self.rows[table].values():
            del row[name]

    @rule(table=ALTERED)
    def rewrite(self, table: str) -> None:
        self._do(f"alter table {table} alter n type bigint using n + 1")
        for row in self.rows[table].values():
            row["n"] += 1

    @precondition(lambda self: not self.unpublished)
    @rule(table=ALTERED)
    def unpublish(self, table: str) -> None:
        """Its changes are not sent from here on; when it is published again it has to be read."""
        self._do(f"alter publication {self.rig.settings.publication} drop table {table}")
        self.unpublished = table
        self.lab.count(unpublished=1)

    @precondition(lambda self: self.unpublished)
    @rule()
    def publish_again(self) -> None:
        held = {row[0] for row in self.session.execute(_PUBLISHED, [self.rig.settings.publication])}
        for table in sorted({*TABLES} - held):
            self._do(f"alter publication {self.rig.settings.publication} add table {table}")
        self.unpublished = ""

    @rule(table=ALTERED, changes=CHANGES)
    def rename_and_back(self, table: str, changes: list[Change]) -> None:
        self._do(f"alter table {table} rename to {table}_away")
        self._change(f"{table}_away", table, changes)
        self._do(f"alter table {table}_away rename to {table}")
        self.lab.count(renamed=1)

    @rule(changes=CHANGES)
    def another_key_and_back(self, changes: list[Change]) -> None:
        self._do("alter table b drop constraint b_pkey, add constraint b_pkey primary key (id, mood)")
        self._change("b", "b", changes)
        self._do("alter table b drop constraint b_pkey, add constraint b_pkey primary key (id)")
        self._do("alter table b alter mood drop not null")
        self.lab.count(keys_changed=1)

    @rule()
    def rename_a_label(self) -> None:
        old = self._label()
        new = f"calm{int(old[4:] or 0) + 1}"
        self._do(f"alter type mood rename value '{old}' to '{new}'")
        for row in self.rows["b"].values():
            row["mood"] = new
        self.lab.count(labels_renamed=1)

    @rule(table=ALTERED, changes=CHANGES, held_s=st.floats(0, 2))
    def lock_for_a_while(self, table: str, changes: list[Change], held_s: float) -> None:
        """Its changes from just before may have values that have to be read; the other table's go on."""
        self._change(table, table, changes)
        other = "b" if table == "a" else "a"
        with self.rig.session() as holder, holder.transaction():
            self.steps.append(f"lock {table}")
            holder.execute(f"lock table {table} in access exclusive mode".encode())
            self._change(other, other, changes)
            SYSTEM_CLOCK.sleep(held_s)
        self.lab.count(locks=1)

    @precondition(lambda self: not self.unpublished)
    @rule(table=ALTERED)
    def read_a_table_again(self, table: str) -> None:
        self.steps.append(f"cdc snapshot public.{table}")
        argv = ["--config", str(self.rig.config), "snapshot", f"public.{table}", "--detach"]
        asked = Life(command, argv, self.rig.folder / "again.err")
        if asked.wait(60) != 0:
            self.held = False
            raise Found(f"cdc snapshot --detach ended with {asked.exit}: {asked.stderr}")
        self.lab.count(snapshots=1)

    @precondition(lambda self: self.up)
    @rule(again=st.booleans())
    def kill(self, again: bool) -> None:
        self._lives()
        self.steps.append("kill, start" if again else "kill")
        self.rig.lives[-1].kill()
        self.lab.count(kills=1)
        self.up = again
        if again:
            self.rig.start()

    @precondition(lambda self: self.up)
    @rule()
    def stop(self) -> None:
        self._lives()
        self.steps.append("stop")
        self.up = False
        life = self.rig.lives[-1]
        # Before it has said a word it has no handler either, and SIGTERM ends it as it ends any program.
        if life.stop() != 0 and not (life.exit == -signal.SIGTERM and not life.stderr):
            self.held = False
            raise Found(f"cdc run did not stop in order: {self.rig.last_words()}, after {self.steps}")

    @precondition(lambda self: not self.up)
    @rule()
    def start(self) -> None:
        self.steps.append("start")
        self.rig.start()
        self.up = True

    def teardown(self) -> None:
        """Everything quiet; then the topics give what the dict has."""
        self.late.rollback()
        if not self.held:
            return
        if not self.up:
            self.rig.start()
        if self.unpublished:
            self.publish_again()
        wait_until(self._seen, _QUIET_S, lambda: f"{self.rig.last_words()} after {self.steps}")
        self.rig.settle()
        memory = oracle.replayed(oracle.read_log(self.rig.settings), self.rig.settings)
        for table, wanted in self.rows.items():
            stored = memory.table(TableName("public", table)).values()
            rows = [orjson.loads(one.row) for one in stored if one.row is not None]
            # Of a dropped column, rows keep what they had until they are written again.
            columns = self._names(table)
            found = {row["id"]: {name: row[name] for name in columns if name in row} for row in rows}
            if found != wanted:
                raise Found(
                    f"{table}: the topics give {_short(found)}, and the dict has {_short(wanted)}, after {self.steps}"
                )
        self.lab.count(sequences=1, steps=len(self.steps))

    def _do(self, *statements: str) -> None:
        for statement in statements:
            self.steps.append(statement)
            self.session.execute(statement.encode())

    def _change(self, name: str, table: str, changes: list[Change]) -> None:
        """One transaction, on a table that has this name now."""
        self._do("begin", *(change.sql(name) for change in changes), "commit")
        for change in changes:
            self._note(change, table)

    def _note(self, change: Change, table: str) -> None:
        own = {"mood": self._label()} if table == "b" else {}
        change.on(self.rows[table], own | self.added[table])

    def _label(self) -> str:
        """The default of ``b.mood``, as it is called now."""
        row = self.session.execute(_LABEL).fetchone()
        assert row is not None
        return str(row[0])

    def _lives(self) -> None:
        life = self.rig.lives[-1]
        if life.exit is not None:
            self.held = False
            raise Found(f"cdc run ended by itself: {self.rig.last_words()}, after {self.steps}")

    def _names(self, table: str) -> list[str]:
        return [name for _, name in self._form(table).columns]

    def _form(self, table: str) -> Form:
        row = self.session.execute(_FORM, [f"public.{table}"]).fetchone()
        assert row is not None
        return Form([(number, name) for number, name in row[0]], row[1], row[2] or "", set(row[3]))

    def _seen(self) -> bool:
        """Whether the watch has seen the tables as they are, and all that it asked for was read."""
        self._lives()
        documents = open_state(self.rig.settings).read()
        forms = {form.table: form for form in find_all(documents, FormState)}
        if not all(self._form(table).is_in(forms.get(f"public.{table}")) for table in TABLES):
            return False
        return not find_all(documents, RequestState) and not asides_of(documents)


def _short(rows: Mapping[int, Row]) -> str:
    return str({key: {n: v[:20] if isinstance(v, str) else v for n, v in row.items()} for key, row in rows.items()})
