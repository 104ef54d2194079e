"""Cases that need xml, citext, hstore and ltree: on the machine's own PostgreSQL 15 or later, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.debian_postgres import debian_postgres
from tests.golden.differences import RecordDifference, explained_by
from tests.golden.direct import replay_directly
from tests.golden.pairing import golden_differences
from tests.golden.records import CASES, Normaliser, expected_records
from tests.golden.rules import RULES

PG15 = sorted(path.name for path in CASES.iterdir() if path.name.endswith("_pg15"))
EXTENSIONS = ("citext", "hstore", "ltree")


EXPLAINING = {"D2", "D3", "D22", "D24"}
"""The rules that these cases need."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connection string of a server of its own; it ends with this process."""
    with debian_postgres(tmp_path_factory.mktemp("postgres"), EXTENSIONS) as dsn:
        yield dsn


def found(case: str, encoding: str, server: str) -> list[RecordDifference]:
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("drop database if exists replayed with (force)")
        admin.execute("create database replayed")
    wires, facts = replay_directly(case, make_conninfo(server, dbname="replayed"), encoding, Path("psql"))
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    normaliser = Normaliser(case=case, pipeline=case)
    folder = CASES / case if encoding == "debezium" else CASES / case / "readable"
    theirs = expected_records(folder if (folder / "expected.jsonl").exists() else CASES / case)
    return list(golden_differences(encoding, theirs, [normaliser.record(wire) for wire in wires], facts))


@pytest.mark.slow
@pytest.mark.parametrize("case", PG15)
@pytest.mark.parametrize("encoding", ["readable", "debezium"])
def test_a_case_equals_debezium_but_for_what_a_rule_explains(case: str, encoding: str, server: str) -> None:
    every = found(case, encoding, server)
    assert [str(d) for d in every if len(explained_by(RULES, d)) != 1] == []
    assert {name for d in every for name in explained_by(RULES, d)} == EXPLAINING
