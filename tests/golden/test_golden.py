"""What the real Debezium wrote for many SQL scripts, and what we write for the same."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.stack.postgres import install_folder
from tests.conftest import Spawned, drop_database, fresh_name
from tests.golden.compare import Difference, differences
from tests.golden.records import CASES, Normaliser, Record, Wire, expected_records, in_order, renumbered
from tests.golden.replay import Script, replay
from tests.golden.rules import LEFT_OUT, REFUSED_TABLES, RULES

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


@pytest.fixture(scope="module")
def wires(
    encoding: str, postgres: str, kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[Wire]]]:
    """Our records of every case, by case, in source order: all cases replayed at once in one database."""
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

    def cdc(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cdc", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(config: Path) -> None:
        argv = [sys.executable, "-m", "cdc", "run", "--config", str(config)]
        captures.append(Spawned(argv, folder / "run.out", folder / "run.err", {}))

    try:
        found = replay(script, folder, cdc, start)
    finally:
        for capture in captures:
            assert capture.terminate() == 0, capture.stderr
        with psycopg.connect(postgres, autocommit=True) as admin:
            drop_database(admin, name)
    yield {case: in_order(w for w in found if w.topic.startswith(f"{name}.{case}.")) for case in REPLAYED}


def ours(case: str, found: list[Wire]) -> list[Record]:
    pipeline = found[0].topic.split(".", 1)[0] if found else ""
    normaliser = Normaliser(
        case=case,
        pipeline=pipeline,
        own_stream=case != "sh_nokey",  # its first tables are refused, and their transactions with them
        unnumbered="t" if case == "sh_truncate_default" else "",
    )
    return [normaliser.record(wire) for wire in found]


def explained_by(difference: Difference) -> list[str]:
    return [rule.name for rule in RULES if rule.explains(difference)]


def every_difference(wires: dict[str, list[Wire]], encoding: str) -> Iterator[Difference]:
    for case in REPLAYED:
        folder = golden_file(case, encoding)
        if folder is None:
            continue
        theirs = renumbered(r for r in expected_records(folder) if r.topic.split(".", 1)[1] not in REFUSED_TABLES)
        yield from differences(case, encoding, theirs, ours(case, wires[case]))


@pytest.mark.parametrize("case", REPLAYED)
def test_a_case_equals_debezium_but_for_what_a_rule_explains(
    case: str, wires: dict[str, list[Wire]], encoding: str
) -> None:
    if golden_file(case, encoding) is None:
        assert wires[case], "the case has no expectation in this encoding, but it has records"
        return
    found = [d for d in every_difference({**wires}, encoding) if d.case == case]
    unexplained = [str(d) for d in found if len(explained_by(d)) != 1]
    assert unexplained == []


def test_each_rule_still_explains_something(wires: dict[str, list[Wire]], encoding: str) -> None:
    used = Counter(name for d in every_difference(wires, encoding) for name in explained_by(d))
    wanted = {rule.name for rule in RULES if encoding in rule.encodings}
    assert wanted - set(used) == set()


def test_every_case_is_replayed_or_left_out_with_a_reason() -> None:
    assert set(LEFT_OUT) <= set(ALL)
    pg15 = {case for case in ALL if case.endswith("_pg15")}
    assert set(REPLAYED) | set(LEFT_OUT) | pg15 == set(ALL)
    assert all(LEFT_OUT.values())


def test_every_record_has_our_three_headers(wires: dict[str, list[Wire]]) -> None:
    for found in wires.values():
        for wire in found:
            names = [name for name, _ in wire.headers]
            assert names[-3:] == ["pos", "op", "ver"] or names[:3] == ["pos", "op", "ver"]
