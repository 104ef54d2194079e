"""Two keys that a unique index holds for different have different texts, whatever their type, and find their row again.

The types come from the catalog: each one that a unique index takes has values here, or the test says which has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.capture.transaction_visibility import Visibility
from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.schema import Encoding, TableSchema
from cdc.settings.mask_rules import NO_MASKS
from cdc.settings.model import parse
from cdc.verification.ports import VerifiedTable
from cdc.verification.repair import record_key
from cdc.wire.plain import HASHED_KEY, LONGEST_KEY_BYTES, PlainTable, store_key
from connectors.postgres.encoding.encoder import TableEncoder, compile_table
from connectors.postgres.server.catalog_shapes import survey, table_schema
from connectors.postgres.server.connections import PINNED
from connectors.postgres.server.cut_reader import SourceCut
from sinks.contract.store_names import document_id
from snapshot.later.window_read import WindowTask, read
from snapshot.source.planned_tables import Chunk
from tests.fresh import fresh_name
from tests.golden import test_pg15

Session = psycopg.Connection[tuple[Any, ...]]
installed = test_pg15.server
"""The machine's own Postgres, which has the extensions."""

LONG = "x" * (LONGEST_KEY_BYTES + 1)
TEXTS = (
    "", " ", "a", "A", "a ", " a", "b", "%", ":", "a:b", "%3A", "%25", "%null", "null", "all", "%empty", "NaN", "é",
    "e\u0301", '"', "\\", "\\\\", "\t", "\n", "\r\n", "\u2028", "\ufeff", "{}", "true", "1", "01", LONG, f"{LONG}y",
    store_key([LONG]),
)  # fmt: skip
WHOLE = ("0", "1", "-1", "7")
FLOATS = ("0", "-0", "1", "-1", "0.1", "NaN", "Infinity", "-Infinity", "1e15", "1e16", "123456789012345680")
DATES = (
    "infinity", "-infinity", "4713-11-24 BC", "0044-03-15 BC", "0001-12-31 BC", "0001-01-01", "0044-03-15",
    "1582-10-15", "1969-12-31", "1970-01-01", "9999-12-31", "10000-01-01", "290000-01-01",
)  # fmt: skip
CLOCKS = ("00:00", "24:00", "23:59:59.999999", "00:00:00.1", "00:00:00.10", "12:00", "12:00:00.001", "12:00:00.000001")
STAMPS = (*DATES, *(f"{day} 23:59:59.999999" for day in ("0044-03-15 BC", "2016-11-04")), "2016-11-04 12:00:00.001")
BITS = ("", "0", "1", "00", "01", "10", "000", "001", "00000001", "000000001", "100000000")
VALUES: dict[str, Sequence[str]] = {
    "bool": ("t", "f"),
    "int2": (*WHOLE, "-32768", "32767"),
    "int4": (*WHOLE, "-2147483648", "2147483647"),
    "int8": (*WHOLE, "-9223372036854775808", "9223372036854775807", "9007199254740993", "9007199254740992"),
    "oid": ("0", "1", "4294967295"),
    "float4": (*FLOATS, "1e-45", "3.4028235e38", "16777216", "0.10000001"),
    "float8": (*FLOATS, "5e-324", "1.7976931348623157e308", "0.30000000000000004", "0.3", "9007199254740993"),
    "numeric": (*FLOATS, "1.0", "1.00", "0.10", "1e400", "1e-400", "12345678901234567890.123", "-12345678901234567890"),
    "money": ("0", "-0.01", "0.01", "1234.11", "-1234.11", "92233720368547758.07", "-92233720368547758.08"),
    "text": TEXTS,
    "varchar": TEXTS,
    "bpchar": TEXTS,
    "name": [text for text in TEXTS if len(text.encode()) < 64],
    "char": ("", "a", " ", "\\", ":", "%", r"\200", r"\377"),
    "bytea": ("", r"\x00", r"\x0000", r"\x5c", r"\xff", r"\x" + "01" * 600, r"\x" + "01" * 599 + "02"),
    "bit": ("0", "1"),
    "varbit": BITS,
    "date": (*DATES, "5874897-12-31"),
    "time": CLOCKS,
    "timetz": ("10:00+02", "08:00+00", "08:00:00.1+00", "24:00+00", "00:00+00", "00:00-15:59", "00:00+15:59:30"),
    "timestamp": STAMPS,
    "timestamptz": (*STAMPS, "2016-11-04 12:00+00", "2016-11-04 12:00+02"),
    "interval": (
        "0", "1 mon", "30 days", "30 days 10:30", "31 days", "1 year", "360 days", "365.25 days", "1 day", "24:00",
        "-0.5 s", "0.5 s", "-1 mon 1 day", "178000000 years", "-178000000 years", "infinity", "-infinity",
    ),
    "uuid": ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "macaddr": ("00:00:00:00:00:00", "08:00:2b:01:02:03"),
    "macaddr8": ("00:00:00:00:00:00:00:00", "08:00:2b:ff:fe:01:02:03"),
    "inet": (
        "10.0.0.1", "10.0.0.1/8", "10.0.0.1/31", "0.0.0.0/0", "::", "::/0", "::ffff:1.2.3.4", "1.2.3.4", "fe80::1",
    ),
    "cidr": ("10.0.0.0/8", "10.0.0.0/9", "10.0.0.0/32", "::/0", "0.0.0.0/0", "::ffff:1.2.3.4/128"),
    "jsonb": (
        "null", '"null"', "1", "1.0", '"1"', "1e400", "{}", "[]", "[[]]", '""', '{"a": 1, "b": 2}', '{"a": null}',
        '{"a": "b:%"}', "true", '"true"', "12345678901234567890123", "12345678901234567890124",
    ),
    "tsvector": ("", "'a'", "'a':1", "'a':1A", "'a' 'b'", "'a b'", "':'"),
    "pg_lsn": ("0/0", "0/1", "1/0", "FFFFFFFF/FFFFFFFF"),
    "tid": ("(0,0)", "(0,1)", "(1,0)", "(4294967295,65535)"),
    "xid8": ("0", "1", "18446744073709551615"),
    "oidvector": ("", "0", "1 2", "12"),
    "int2vector": ("", "0", "1 2", "12"),
    "int4range": ("empty", "(,)", "[1,2)", "[1,)", "(,1)", "[1,3)"),
    "int8range": ("empty", "(,)", "[1,2)", "[1,)", "(,1)"),
    "numrange": ("empty", "(,)", "[1,2)", "(1,2)", "[1,2]", "[1.0,2)", "[NaN,NaN]", "[1,Infinity)", "[1,)"),
    "daterange": ("empty", "(,)", "[2016-11-04,infinity)", "[2016-11-04,)", '["0044-03-15 BC",2016-11-04)'),
    "tsrange": ("empty", "(,)", "[2016-11-04,infinity)", "[2016-11-04,)", "[2016-11-04,infinity]"),
    "tstzrange": ("empty", "(,)", "[2016-11-04 10:00+02,)", "[2016-11-04 10:00+00,)"),
    "int4multirange": ("{}", "{(,)}", "{[1,2)}", "{[1,2),[3,4)}"),
    "int8multirange": ("{}", "{(,)}", "{[1,2)}", "{[1,2),[3,4)}"),
    "nummultirange": ("{}", "{(,)}", "{[1,2)}", "{[1,2),(2,4)}", "{[1,2),[3,4)}"),
    "datemultirange": ("{}", "{(,)}", "{[2016-11-04,infinity)}", "{[2016-11-04,)}"),
    "tsmultirange": ("{}", "{(,)}", "{[2016-11-04,infinity)}", "{[2016-11-04,)}"),
    "tstzmultirange": ("{}", "{(,)}", "{[2016-11-04 10:00+02,)}", "{[2016-11-04 10:00+00,)}"),
}  # fmt: skip
"""Of each type of pg_catalog that a unique index takes."""
NAMES_OF_OBJECTS = {
    "regproc", "regprocedure", "regoper", "regoperator", "regclass", "regcollation", "regtype", "regconfig",
    "regdictionary", "regrole", "regnamespace",
}  # fmt: skip
"""Refused: the text is that of a name, which two functions may have, and which changes."""
PRINTED_ALIKE = {"tsquery"}
"""Refused: the text leaves out brackets that the index compares."""
WITHOUT_VALUES = {"pg_mcv_list", "pg_dependencies", "pg_ndistinct", "pg_node_tree"}
"""Postgres takes no value of these from anybody."""
MADE = """
create type mood as enum ('', 'a', 'A', 'NULL', ':', '%');
create domain bits as bit varying;
create domain few_bits as bit varying(1);
create domain instants as timetz[];
create type pair as (a bit varying, b text);
create type nested as (p pair, l int[], t timetz);
create type clocks as range (subtype = timetz);
"""
ARRAYS = ("{}", "{1,2}", "[0:1]={1,2}", "[2:3]={1,2}", "{{1,2}}", "{{1},{2}}", "{NULL}", "{1,NULL}", "{12}")
PAIRS = ("(,)", '("",)', '(,"")', '("","")', "(0,a)", "(00,a)", '(0,"a,b")', '(0,"(a)")', '(0," a")', '(0,"""")')
OTHERS: dict[str, Sequence[str]] = {
    "bit(3)": ("000", "001", "100"),
    '"bit"': ("0", "00", "001"),
    "bit varying(1)": ("", "0", "1"),
    "char(3)": ("", "a", "a ", "ab"),
    "numeric(10,2)": ("0", "0.00", "1.1", "1.10", "NaN", "-1.10", "11"),
    "numeric(3,-2)": ("0", "100", "99900", "NaN"),
    "time(3)": CLOCKS,
    "timetz(0)": ("10:00+02", "08:00+00"),
    "timestamp(3)": STAMPS,
    "timestamp(0)": STAMPS,
    "timestamptz(3)": STAMPS,
    "interval second(3)": ("1 s", "1.001 s", "-1 s"),
    "mood": ("", "a", "A", "NULL", ":", "%"),
    "bits": BITS,
    "few_bits": ("", "0", "1"),
    "pair": PAIRS,
    "nested": ('("(0,)","{1,2}",10:00+02)', '("(00,)","{1,2}",10:00+02)', '("(0,)","[0:1]={1,2}",10:00+02)',
               '("(0,)","{1,2}",08:00+00)', '(,"{1,2}",)', '("(,)","{1,2}",)'),
    "clocks": ("empty", "[10:00+02,)", "[08:00+00,)", "(08:00+00,)"),
    "int[]": ARRAYS,
    "bit varying[]": ("{}", "{0}", "{00}", '{""}', "{NULL}"),
    "text[]": ("{}", "{NULL}", '{"NULL"}', '{""}', '{"a,b"}', "{a,b}", '{"{a}"}', '{"\\\\"}', "{a:b}"),
    "numeric[]": ("{NaN}", "{Infinity}", "{NULL}", "{1.0}", "{1.00}", "{1}"),
    "bits[]": ("{0}", "{00}", '{""}'),
    "instants": ("{10:00+02}", "{08:00+00}", "{}"),
    "pair[]": ('{"(0,a)"}', '{"(00,a)"}', "{NULL}", '{"(,)"}'),
    "timestamptz[]": ("{infinity}", "{NULL}", '{"2016-11-04 12:00+00"}'),
}  # fmt: skip
"""Of types with a modifier, and of those that are made of others."""
OWNED: dict[str, Sequence[str]] = {
    "citext": TEXTS,
    "hstore": ("", "a=>1", "a=>NULL", 'a=>"NULL"', 'a=>""', "a=>1,b=>2", '":"=>"%"'),
    "ltree": ("", "a", "A", "a.b", "a_b"),
    "cube": ("(0)", "(1)", "(1,2)", "(1),(2)", "(0.1)", "(0.10000000000000002)", "(NaN)"),
    "isbn": ("0-393-04002-X", "978-0-393-04002-9", "0-8436-1072-7"),
    "ean13": ("978-0-393-04002-9", "220-0-123-45678-6"),
}
"""Of types that an extension makes."""
EXTENSIONS = {"isbn": "isn", "ean13": "isn"}


def open_session(dsn: str, *, autocommit: bool = True, **others: str) -> Session:
    options = " ".join(f"-c {name}={value}" for name, value in (dict(PINNED) | others).items())
    return psycopg.connect(dsn, autocommit=autocommit, options=options)


def open_cut(dsn: str) -> SourceCut:
    return SourceCut(lambda now: open_session(dsn, autocommit=now), "none", SYSTEM_CLOCK, masks=NO_MASKS)


@contextmanager
def fresh_database(dsn: str) -> Iterator[str]:
    name = sql.Identifier(database := fresh_name())
    with open_session(dsn) as admin:
        admin.execute(sql.SQL("create database {}").format(name))
        yield make_conninfo(dsn, dbname=database)
        admin.execute(sql.SQL("drop database {} with (force)").format(name))


@pytest.fixture(scope="module")
def one_database(postgres: str) -> Iterator[str]:
    """One for all types, each of which has the table in its turn."""
    with fresh_database(postgres) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def session(one_database: str) -> Iterator[Session]:
    with open_session(one_database, search_path="public") as session:
        session.execute(MADE)
        yield session


@pytest.fixture
def alone(database: str) -> Iterator[Session]:
    """In a database of the test's own."""
    with open_session(database, search_path="public") as session:
        yield session


@pytest.fixture
def cut(one_database: str) -> Iterator[SourceCut]:
    with closing(open_cut(one_database)) as opened:
        yield opened


def keyable(session: Session) -> set[str]:
    """Every type of pg_catalog that a unique index takes, arrays as their elements."""
    found = set()
    for (name,) in session.execute(
        "select typname from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'r', 'm')"
        " and not (typcategory = 'A' and typname like '\\_%')"
    ).fetchall():
        try:
            with session.transaction():
                session.execute(
                    sql.SQL("create table tried (k pg_catalog.{}, unique (k))").format(sql.Identifier(name))
                )
                session.execute("drop table tried")
        except psycopg.errors.UndefinedObject:
            continue
        found.add(name)
    return found


def filled(session: Session, kind: str, values: Sequence[str]) -> int:
    """A table with one row of each key that the index holds for different. How many there are."""
    session.execute("drop table if exists public.t")
    session.execute(f"create table public.t (k {kind} primary key, v int generated always as identity)")
    for value in values:
        statement = f"insert into public.t (k) values (%s::{kind}) on conflict do nothing"
        session.execute(statement, [value])
    row = session.execute("select count(*) from public.t").fetchone()
    assert row is not None
    return int(row[0])


def shape_of(session: Session, encoding: Encoding) -> TableSchema:
    (oid,) = session.execute("select 'public.t'::regclass::oid::int8").fetchone() or (0,)
    return table_schema(session, int(oid), topic="shop.public.t", encoding=encoding, masks=NO_MASKS)


def rows_of(session: Session, encoder: TableEncoder) -> list[tuple[bytes, bytes]]:
    with session.cursor() as cursor, cursor.copy("copy (select k, v from public.t) to stdout") as copied:
        return [encoder.snapshot_line(bytes(line)) for line in copied]


def assert_told_apart(session: Session, cut: SourceCut, kind: str, values: Sequence[str]) -> None:
    count = filled(session, kind, values)
    for encoding in ("debezium", "readable"):
        shape = shape_of(session, encoding)
        encoder = compile_table(shape, name="shop", database="d", masks=NO_MASKS)
        rows = rows_of(session, encoder)
        keys = [PlainTable(shape).key(key) for key, _ in rows]
        assert [PlainTable(shape).keys([key for key, _ in rows])] == [keys]
        assert len(rows) == len({key for key, _ in rows}) == len(set(keys)) == count, (kind, encoding, sorted(keys))
        ids = [document_id(key) for key in keys]
        assert len(set(ids)) == count, (kind, ids)
        assert all(0 < len(one.encode()) <= LONGEST_KEY_BYTES for one in ids), (kind, ids)
        if encoding == "readable":
            assert_found_again(session, cut, shape, dict(zip(keys, rows, strict=True)))


def assert_found_again(
    session: Session, cut: SourceCut, shape: TableSchema, rows: dict[str, tuple[bytes, bytes]]
) -> None:
    """By the stores' key: for a repair, for ``verify``, and for ``cdc snapshot --keys``."""
    cut.cut()
    table = VerifiedTable(shape=shape, stored=shape, rows=len(rows))
    assert cut.rows_of(table, list(rows)).keys() == rows.keys()
    encoder = compile_table(shape, name="shop", database="d", masks=NO_MASKS)
    for key, row in rows.items():
        if key.startswith(HASHED_KEY):
            assert record_key(shape, key) is None
            continue
        record = record_key(shape, key)
        assert record is not None, key
        assert PlainTable(shape).key(record) == key
        chunk = Chunk(keys=((unquote(key),),))
        found = read(session, WindowTask(chunk=chunk, schema=shape, partitioned=False), encoder, passed)
        assert found.rows == [row], (key, found)


def passed(seen: Visibility) -> bool:
    return True


def test_w1_every_type_that_a_key_may_have_is_tried(session: Session) -> None:
    assert keyable(session) == set(VALUES) | NAMES_OF_OBJECTS | PRINTED_ALIKE | WITHOUT_VALUES


@pytest.mark.parametrize("kind", VALUES)
def test_w1_different_keys_have_different_texts(session: Session, cut: SourceCut, kind: str) -> None:
    assert_told_apart(session, cut, f'pg_catalog."{kind}"' if kind != "bit" else "bit", VALUES[kind])


@pytest.mark.parametrize("kind", OTHERS)
def test_w1_keys_of_made_types_have_different_texts(session: Session, cut: SourceCut, kind: str) -> None:
    assert_told_apart(session, cut, kind, OTHERS[kind])


@pytest.mark.parametrize("kind", OWNED)
def test_w1_keys_of_an_extension_have_different_texts(installed: str, kind: str) -> None:
    with (
        fresh_database(installed) as dsn,
        open_session(dsn, search_path="public") as session,
        closing(open_cut(dsn)) as cut,
    ):
        session.execute(sql.SQL("create extension {}").format(sql.Identifier(EXTENSIONS.get(kind, kind))))
        assert_told_apart(session, cut, kind, OWNED[kind])


def test_w1_keys_that_postgres_prints_alike_are_refused(installed: str) -> None:
    with fresh_database(installed) as dsn, open_session(dsn, search_path="public") as session:
        session.execute("create extension seg; create table cut (k seg primary key)")
        session.execute("insert into cut values ('0.1234567'), ('0.1234568')")
        assert len(set(session.execute("select k::text from cut").fetchall())) == 1
        assert_refused(session, dsn, "cut", ["k, a part of the key of public.cut, holds a seg"])


def test_w1_a_tsquery_in_a_key_is_refused(alone: Session, database: str) -> None:
    alone.execute("create domain sought as tsquery[]; create table t (k tsquery primary key)")
    alone.execute("insert into t values ('a & (b & c)'), ('(a & b) & c')")
    assert len(set(alone.execute("select k::text from t").fetchall())) == 1
    assert_refused(alone, database, "t", ["k, a part of the key of public.t, holds a tsquery"])
    alone.execute("create table deep (k sought primary key)")
    assert_refused(alone, database, "deep", ["k, a part of the key of public.deep, holds a tsquery"])


def test_w1_a_key_whose_text_is_a_name_is_refused(alone: Session, database: str) -> None:
    alone.execute(
        "create type called as (f regproc, n int);"
        "create table t (a int, f regproc, c called, o oid, primary key (f, c, o));"
        "create table fine (o oid primary key)"
    )
    assert_refused(alone, database, "fine", [])
    columns = ("f", "c")
    assert_refused(alone, database, "t", [f"{c}, a part of the key of public.t, holds a regproc" for c in columns])


def assert_refused(session: Session, dsn: str, table: str, problems: list[str]) -> None:
    source = {"dsn": dsn, "tables": [f"public.{table}"]}
    settings = parse({"name": "shop", "source": source, "log": {"bootstrap_servers": "none"}})
    (found,) = survey(session, settings).tables
    assert [problem.message.partition(":")[0] for problem in found.problems] == problems


def test_w1_a_key_that_debezium_writes_alike_is_refused(alone: Session, database: str) -> None:
    alone.execute("create table t (a timetz primary key, i int[]); create table fine (a int primary key, t timetz)")
    settings = parse(
        {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": database, "tables": ["public.*"]},
            "log": {"bootstrap_servers": "none"},
        }
    )
    found = {str(one.table): [p.message for p in one.problems] for one in survey(alone, settings).tables}
    assert found["public.fine"] == []
    (message,) = found["public.t"]
    assert (
        "a of public.t is a time with time zone, and Debezium leaves it out or writes different values alike" in message
    )
