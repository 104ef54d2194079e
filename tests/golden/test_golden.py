"""What the real Debezium wrote for many SQL scripts, and what we write for the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.settings.model import load
from cdc.stack.postgres import install_folder
from cdc.wiring import open_schemas, open_source
from tests.fork_server import ForkServer
from tests.fresh import drop_database, fresh_name
from tests.golden.compared_record import ComparedRecord, Facts, table_facts
from tests.golden.differences import RecordDifference, explained_by
from tests.golden.left_out import LEFT_OUT, REFUSED_TABLES
from tests.golden.pairing import golden_differences
from tests.golden.records import CASES, Normaliser, Wire, expected_records, in_order, renumbered
from tests.golden.replay import Script, replay
from tests.golden.rules import RULES
from tests.programs import Spawned

ALL = sorted(path.name for path in CASES.iterdir())
REPLAYED = [case for case in ALL if case not in LEFT_OUT and not case.endswith("_pg15")]
EITHER = {"sh_decimal_string": "readable"}
"""A case that fixes the modes itself equals one of our encodings."""


def golden_file(case: str, encoding: str) -> Path | None:
    """The folder with the expected records of a case in an encoding, if it has them."""
    if case in EITHER:
        return CASES / case if EITHER[case] == encoding else None
    folder = CASES / case if encoding == "debezium" else CASES / case / "readable"
    return folder if (folder / "expected.jsonl").exists() else None


@pytest.fixture(scope="module", params=["readable", "debezium"])
def encoding(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Replayed(NamedTuple):
    """Our records of every case, by case, in source order; and what the rules ask of the tables."""

    wires: Mapping[str, list[Wire]]
    facts: Facts


@pytest.fixture(scope="module")
def replayed(
    encoding: str, postgres: str, kafka: str, tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer
) -> Iterator[Replayed]:
    """All cases replayed at once in one database."""
    folder = tmp_path_factory.mktemp(f"golden-{encoding}")
    name = fresh_name()
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    script = Script(
        name=name,
        dsn=make_conninfo(postgres, dbname=name),
        kafka=kafka,
        encoding=encoding,
        cases=REPLAYED,
        exclude=sorted(REFUSED_TABLES),
        psql=install_folder() / "bin" / "psql",
    )
    captures: list[Spawned] = []

    def begun(*arguments: str) -> Spawned:
        out, err = folder / f"{arguments[0]}.out", folder / f"{arguments[0]}.err"
        return Spawned(fork_server.start(arguments, out, err, env=os.environ, cwd=folder), out, err)

    def cdc(*arguments: str) -> str:
        done = begun(*arguments)
        assert done.wait(120) == 0, done.stderr
        return done.stdout

    def start(config: Path) -> None:
        captures.append(begun("run", "--config", str(config)))

    try:
        found = replay(script, folder, cdc, start)
        settings = load(folder / "cdc.toml", {})
        with closing(open_source(settings)) as session:
            facts = table_facts(session, open_schemas(settings).versions())
    finally:
        for capture in captures:
            assert capture.terminate() == 0, capture.stderr
        with psycopg.connect(postgres, autocommit=True) as admin:
            drop_database(admin, name)
    yield Replayed(
        {case: in_order(w for w in found if w.topic.startswith(f"{name}.{case}.")) for case in REPLAYED}, facts
    )


def ours(case: str, found: list[Wire]) -> list[ComparedRecord]:
    pipeline = found[0].topic.split(".", 1)[0] if found else ""
    normaliser = Normaliser(
        case=case,
        pipeline=pipeline,
        own_stream=case != "sh_nokey",  # its first tables are refused, and their transactions with them
        unnumbered="t" if case == "sh_truncate_default" else "",
    )
    return [normaliser.record(wire) for wire in found]


NOT_HERE = {"D22"}
"""It needs an extension that these cases have not: see test_pg15."""


def case_differences(case: str, replayed: Replayed, encoding: str) -> Iterator[RecordDifference]:
    folder = golden_file(case, encoding)
    if folder is not None:
        theirs = renumbered(r for r in expected_records(folder) if r.table not in REFUSED_TABLES)
        yield from golden_differences(encoding, theirs, ours(case, replayed.wires[case]), replayed.facts)


@pytest.mark.parametrize("case", REPLAYED)
def test_a_case_equals_debezium_but_for_what_a_rule_explains(case: str, replayed: Replayed, encoding: str) -> None:
    if golden_file(case, encoding) is None:
        assert replayed.wires[case], "the case has no expectation in this encoding, but it has records"
        return
    found = case_differences(case, replayed, encoding)
    unexplained = [str(d) for d in found if len(explained_by(RULES, d)) != 1]
    assert unexplained == []


def test_each_rule_still_explains_something(replayed: Replayed, encoding: str) -> None:
    every = (d for case in REPLAYED for d in case_differences(case, replayed, encoding))
    used = Counter(name for d in every for name in explained_by(RULES, d))
    wanted = {rule.name for rule in RULES if encoding in rule.encodings} - NOT_HERE
    assert wanted - set(used) == set()


def test_every_case_is_replayed_or_left_out_with_a_reason() -> None:
    assert set(LEFT_OUT) <= set(ALL)
    pg15 = {case for case in ALL if case.endswith("_pg15")}
    assert set(REPLAYED) | set(LEFT_OUT) | pg15 == set(ALL)
    assert all(LEFT_OUT.values())


def test_every_record_has_our_three_headers(replayed: Replayed) -> None:
    for found in replayed.wires.values():
        for wire in found:
            names = [name for name, _ in wire.headers]
            assert names[-3:] == ["pos", "op", "ver"] or names[:3] == ["pos", "op", "ver"]
