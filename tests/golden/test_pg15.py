"""Cases that need xml, citext, hstore and ltree: on the machine's own PostgreSQL 15 or later, where there is one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.comparison.differences import RecordDifference, explained_by
from cdc.comparison.rules import RULES
from cdc.stack.account import ordinary_account
from cdc.stack.free_ports import free_ports
from tests.golden.direct import replay_directly
from tests.golden.pairing import golden_differences
from tests.golden.records import CASES, Normaliser, expected_records
from tests.waiting import wait_until

PG15 = sorted(path.name for path in CASES.iterdir() if path.name.endswith("_pg15"))
EXTENSIONS = ("citext", "hstore", "ltree")
INSTALLS = Path("/usr/lib/postgresql")
SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical", "fsync=off")


EXPLAINING = {"D2", "D3", "D22", "D24"}
"""The rules that these cases need."""


def install() -> Path | None:
    """The newest PostgreSQL of the machine that has the extensions."""
    for folder in sorted(INSTALLS.glob("*"), key=lambda path: path.name, reverse=True):
        share = Path("/usr/share/postgresql") / folder.name / "extension"
        if folder.name >= "15" and all((share / f"{name}.control").exists() for name in EXTENSIONS):
            return folder / "bin"
    return None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Connection string of a server of its own; it ends with this process."""
    bin_folder = install()
    if bin_folder is None:
        pytest.skip(f"no PostgreSQL 15 or later with {', '.join(EXTENSIONS)} in {INSTALLS}")
    account = ordinary_account()
    data = account.own_folder(tmp_path_factory.mktemp("postgres")) / "data"
    made = subprocess.run(
        [*account.prefix, bin_folder / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
         "--no-locale", "--no-sync"],
        capture_output=True, text=True, check=False, cwd="/", user=account.uid, group=account.gid,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    port = free_ports()["postgres"]
    argv = [str(bin_folder / "postgres"), "-D", str(data), "-p", str(port), *(f"--{s}" for s in SETTINGS)]
    with (data.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            account.ending_with_parent(argv, death_signal=signal.SIGQUIT, parent=os.getpid()),
            stdout=log,
            stderr=log,
            cwd="/",
        )
    dsn = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"

    def answers() -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(dsn):
            return True
        return False

    try:
        wait_until(answers, 30, "PostgreSQL answers")
        yield dsn
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


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


@pytest.mark.parametrize("case", PG15)
@pytest.mark.parametrize("encoding", ["readable", "debezium"])
def test_a_case_equals_debezium_but_for_what_a_rule_explains(case: str, encoding: str, server: str) -> None:
    every = found(case, encoding, server)
    assert [str(d) for d in every if len(explained_by(RULES, d)) != 1] == []
    assert {name for d in every for name in explained_by(RULES, d)} == EXPLAINING
