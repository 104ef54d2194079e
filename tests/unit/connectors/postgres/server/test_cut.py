"""What a comparison asks of the source, and what it takes from the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import psycopg
import pytest
from psycopg import errors, sql

from cdc.process.clock import ManualClock
from cdc.process.errors import CdcError, ConfigError, SourceError
from cdc.process.sql_files import load
from cdc.record.topic_names import TableName
from cdc.settings.mask_rules import NO_MASKS
from cdc.verification.ports import RepairRow, VerifiedTable
from connectors.postgres.server.connections import Connection
from connectors.postgres.server.cut_reader import FILTERS_SINCE, SourceCut
from tests.unit.connectors.postgres import written as w

SQL = load("connectors.postgres.server", "rows.sql")
NAMES = {text: name for name, text in SQL.items()}
SHAPE = w.table(w.column("id", "int4", 0), w.column("doc", "text"))
KEYS_PER_QUERY = 1000
BATCH_ROWS = 5000
Answer = list[tuple[Any, ...]] | psycopg.Error


@dataclass
class Session:
    """One session: ``answers`` by the statement's name, the last again and again; ``lines``: what COPY brings."""

    answers: Mapping[str, list[Answer]] = field(default_factory=dict)
    lines: Sequence[bytes] = ()
    fault: psycopg.Error | None = None
    server_version: int = FILTERS_SINCE
    asked: list[tuple[str, Any]] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)

    @property
    def info(self) -> Session:
        return self

    def execute(self, text: str | sql.Composed, arguments: Any = None) -> Session:
        text = text if isinstance(text, str) else text.as_string(None)
        name = NAMES.get(text, text)
        self.asked.append((name, arguments))
        given = self.answers.get(name, [[(0,)]])
        self._answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(self._answer, psycopg.Error):
            raise self._answer
        return self

    def fetchall(self) -> Answer:
        return self._answer

    @contextmanager
    def cursor(self) -> Iterator[Session]:
        yield self

    @contextmanager
    def copy(self, statement: sql.Composed) -> Iterator[Iterator[memoryview]]:
        self.copied.append(statement.as_string(None))
        if self.fault is not None:
            raise self.fault
        yield map(memoryview, self.lines)

    def rollback(self) -> None:
        self.asked.append(("rollback", None))

    def close(self) -> None:
        self.asked.append(("close", None))


@dataclass
class Source:
    """A reader over two such sessions."""

    fences: Session = field(default_factory=Session)
    reads: Session = field(default_factory=Session)
    clock: ManualClock = field(default_factory=ManualClock)

    @property
    def cut(self) -> SourceCut:
        def opened(fences: bool) -> Connection:
            return cast("Connection", self.fences if fences else self.reads)

        return SourceCut(opened, "cdc_shop", self.clock, settle_s=1.0, masks=NO_MASKS)


def table(*columns: Any, partitioned: bool = False) -> VerifiedTable:
    shape = w.table(*columns) if columns else SHAPE
    return VerifiedTable(shape=shape, stored=shape, rows=0, partitioned=partitioned)


def lines(*numbers: int) -> list[bytes]:
    return [b"%d\tdoc %d\n" % (number, number) for number in numbers]


def looked_up(*kinds: str, keys: Sequence[str]) -> list[str]:
    """The statements that look these keys up."""
    columns = [w.column(f"k{at}", kind, at) for at, kind in enumerate(kinds)]
    source = Source(Session({"filter": [[]]}))
    source.cut.rows_of(table(*columns), keys)
    return source.reads.copied


FENCE = ("insert_lsn", "mark")


def test_a_cut_waits_for_what_runs_and_stands_before_its_fence() -> None:
    answers: Mapping[str, list[Answer]] = {
        "insert_lsn": [[(500,)], [(640,)]],
        "newest_xid": [[(77,)]],
        "ended": [[(False,)], [(False,)], [(True,)]],
    }
    source = Source(fences=Session(answers))
    cut = source.cut.cut()
    assert (cut.fence, cut.settled, cut.certain) == (640, 500, True)
    assert [name for name, _ in source.fences.asked] == ["insert_lsn", "newest_xid", *["ended"] * 3, *FENCE]
    assert source.fences.asked[2] == ("ended", {"xid": 77})
    transaction = "set transaction isolation level repeatable read read only"
    assert [name for name, _ in source.reads.asked] == ["rollback", transaction, "snapshot"]


def test_a_cut_behind_an_endless_transaction_is_not_certain() -> None:
    source = Source(fences=Session({"ended": [[(False,)]]}))
    began_s = source.clock.monotonic()
    assert source.cut.cut().certain is False
    assert 1.0 <= source.clock.monotonic() - began_s < 1.1


def test_both_sessions_are_let_go() -> None:
    source = Source()
    source.cut.close()
    assert (source.fences.asked, source.reads.asked) == ([("close", None)], [("close", None)])


def test_numbers_of_the_server() -> None:
    fences = Session({"insert_lsn": [[(500,)]], "estimate": [[(12,)]]})
    cut = Source(fences).cut
    assert (cut.insert_lsn(), cut.estimate(99)) == (500, 12)
    assert fences.asked[-1] == ("estimate", {"oid": 99})


def test_rows_are_canonical_and_named_as_in_the_stores() -> None:
    source = Source(Session({"filter": [[]]}), Session(lines=lines(1, 2)))
    ((keys, rows),) = source.cut.rows(table())
    assert list(keys) == ["1", "2"]
    assert [b"doc 1" in rows[0], b"doc 2" in rows[1]] == [True, True]


def test_rows_come_in_batches() -> None:
    source = Source(Session({"filter": [[]]}), Session(lines=lines(*range(2 * BATCH_ROWS + 1))))
    assert [len(keys) for keys, _ in source.cut.rows(table())] == [BATCH_ROWS, BATCH_ROWS, 1]
    assert list(Source(Session({"filter": [[]]})).cut.rows(table())) == []
    whole = Source(Session({"filter": [[]]}), Session(lines=lines(*range(BATCH_ROWS))))
    assert [len(keys) for keys, _ in whole.cut.rows(table())] == [BATCH_ROWS]


@pytest.mark.parametrize(
    ("partitioned", "filtered", "version", "statement"),
    [
        (False, False, FILTERS_SINCE, 'copy (select "id", "doc" from only {} where true) to stdout'),
        (True, False, FILTERS_SINCE, 'copy (select "id", "doc" from  {} where true) to stdout'),
        (False, True, FILTERS_SINCE, 'copy (select "id", "doc" from only {} where (id > 3)) to stdout'),
        (False, True, FILTERS_SINCE - 1, 'copy (select "id", "doc" from only {} where true) to stdout'),
    ],
)
def test_what_is_copied_is_what_is_published(partitioned: bool, filtered: bool, version: int, statement: str) -> None:
    fences = Session({"filter": [[("(id > 3)",)] if filtered else []]}, server_version=version)
    source = Source(fences)
    list(source.cut.rows(table(partitioned=partitioned)))
    name = f'"{SHAPE.table.schema}"."{SHAPE.table.table}"'
    assert [text.strip() for text in source.reads.copied] == [statement.format(name)]
    asked = [("filter", {"publication": "cdc_shop", "oid": SHAPE.oid})] if version >= FILTERS_SINCE else []
    assert fences.asked == asked


def test_rows_of_keys_are_those_asked_for() -> None:
    source = Source(Session({"filter": [[]]}), Session(lines=lines(1, 2, 3)))
    found = source.cut.rows_of(table(), ["1", "3", "9"])
    assert sorted(found) == ["1", "3"]
    assert b"doc 3" in found["3"]
    (statement,) = source.reads.copied
    assert """where ("id") in (('1'), ('3'), ('9'))""" in statement


def test_records_of_keys_are_as_in_the_topic() -> None:
    source = Source(Session({"filter": [[]]}), Session(lines=lines(1, 2)))
    (found,) = source.cut.records_of(table(), ["2"])
    assert found == {"2": RepairRow(b'{"id":2}', b'{"id":2,"doc":"doc 2"}')}
    assert """(('2'))""" in source.reads.copied[0]


def test_so_many_keys_are_looked_up_at_once() -> None:
    found = looked_up("int4", keys=[str(number) for number in range(2 * KEYS_PER_QUERY + 1)])
    assert [statement.count("('") for statement in found] == [KEYS_PER_QUERY, KEYS_PER_QUERY, 1]
    assert "('2000')" in found[-1]


def test_keys_that_are_no_literals_are_found_by_a_full_scan() -> None:
    for kinds in (("numeric",), ("int4", "timestamptz")):
        (statement,) = looked_up(*kinds, keys=["1:2"])
        assert "where true" in statement
    source = Source(Session({"filter": [[]]}))
    source.cut.rows_of(table(replace(w.column("id", "int4", 0), array=True)), ["1"])
    assert "where true" in source.reads.copied[0]


def test_v13_keys_with_a_null_are_looked_up_by_a_condition() -> None:
    columns = (w.column("a", "text", 0), w.column("b", "int4", 1))
    shape = replace(w.table(*columns), table=TableName("view", "groups"))
    source = Source(Session({"filter": [[]]}))
    grouped = VerifiedTable(shape=shape, stored=shape, rows=0, query="select 1")
    source.cut.rows_of(grouped, ["x:1", "%null:2", "%25null:3", "%null:x"])
    literals, condition = source.reads.copied
    assert """in (('x', '1'), ('%null', '3'))""" in literals
    assert """where ("a" is not distinct from NULL and "b" is not distinct from '2')) to stdout""" in condition


def test_a_table_is_not_asked_for_a_key_with_a_null() -> None:
    assert looked_up("int4", "int4", keys=["%null:1", "1:%null"]) == []


def test_a_views_text_finds_its_tables_by_its_own_path() -> None:
    """Once a cut, where it is another than that of the statement before."""
    reads = Session()
    source = Source(Session({"filter": [[]]}), reads)
    cut = source.cut
    view = replace(table(), query="select id, doc from orders", search_path=("sales", "it's"))
    for one in (table(), view, view, table()):
        cut.rows_of(one, ["1"])
    here, back = 'set local search_path to "sales", "it\'s"', 'set local search_path to "pg_catalog"'
    assert [said for said, _ in reads.asked] == [here, back]
    assert ["from orders\n) as kept where" in statement for statement in reads.copied] == [False, True, True, False]
    list(cut.rows(view))
    cut.cut()
    list(cut.rows(view))
    said = [said for said, _ in reads.asked if said.startswith("set local")]
    assert said == [here, back, here, here], "a path ends with its transaction"


def test_the_row_without_a_key_is_found_by_a_full_scan() -> None:
    shape = replace(w.table(replace(w.column("n", "int8", 0), key_position=None)), table=TableName("view", "total"))
    source = Source(Session({"filter": [[]]}))
    source.cut.rows_of(VerifiedTable(shape=shape, stored=shape, rows=0, query="select 1"), ["all"])
    (statement,) = source.reads.copied
    assert "where" not in statement


UUID = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [
        ("int2", ["-32768", "32767", "0"], ["-32769", "32768", "1.5", "x", "", "--1"]),
        ("int4", ["-2147483648", "2147483647"], ["-2147483649", "2147483648"]),
        ("int8", ["-9223372036854775808", "9223372036854775807"], ["-9223372036854775809", "9223372036854775808"]),
        ("uuid", [UUID], [UUID.upper(), UUID[:-1], UUID + "0", "x"]),
        ("text", ["any", "", "o'clock"], ["nul%00"]),
        ("varchar", ["any"], ["nul%00"]),
    ],
)
def test_only_keys_that_their_column_can_have_are_asked_for(kind: str, fitting: list[str], others: list[str]) -> None:
    (statement,) = looked_up(kind, keys=[*others, *fitting])
    literals = ", ".join("('{}')".format(part.replace("'", "''")) for part in fitting)
    assert f"in ({literals})" in statement
    assert looked_up(kind, keys=others) == []


def test_a_key_of_several_columns_is_asked_for_as_a_row() -> None:
    (statement,) = looked_up("int4", "text", keys=["1:a%3Ab", "1", "1:2:3", "x:a"])
    assert """where ("k0", "k1") in (('1', 'a:b'))""" in statement


@pytest.mark.parametrize(
    ("fault", "kind", "sentence", "hint"),
    [
        (errors.InsufficientPrivilege("permission denied"), ConfigError, "refuses the comparison: permission", "check"),
        (errors.UndefinedColumn("no column"), SourceError, "changed its shape while it was compared", "again"),
        (errors.UndefinedTable("no table"), SourceError, "changed its shape while it was compared", "again"),
        (psycopg.OperationalError("gone"), SourceError, "Postgres broke off: gone", "server's log"),
        (psycopg.OperationalError(" "), SourceError, "Postgres broke off: OperationalError", "server's log"),
        (errors.InvalidTextRepresentation('"secret"'), SourceError, "broke off: it answers 22P02", "server's log"),
        (errors.UndefinedFunction("secret"), SourceError, "broke off: it answers 42883", "server's log"),
    ],
)
def test_a_server_that_breaks_off(fault: psycopg.Error, kind: type[CdcError], sentence: str, hint: str) -> None:
    reading = Source(Session({"filter": [[]]}), Session(fault=fault)).cut
    asking = Source(Session({"insert_lsn": [fault]})).cut
    for call in (lambda: list(reading.rows(table())), asking.cut, asking.insert_lsn):
        with pytest.raises(kind) as refused:
            call()
        assert sentence in refused.value.message
        assert "secret" not in refused.value.message
        assert hint in refused.value.hint
