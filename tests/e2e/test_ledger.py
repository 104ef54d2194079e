"""The worked example ``examples/ledger`` on real servers: commands, killed transfers, balances, search and audit."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from opensearchpy import OpenSearch

from cdc import inbox
from cdc.process.errors import Exit
from examples.ledger import commands
from examples.ledger.account import Account, Command, Event, Refused, account_of, decide
from tests.integration.cli.pipeline import Pipeline
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "examples" / "ledger"
ACCOUNTS = [f"a{number}" for number in range(6)]
_ENDS = """
select count(*) filter (where type = 'TransferSent'), count(*) filter (where type <> 'TransferSent'), sum(amount)
  from ledger_events where transfer is not null group by transfer
"""


@pytest.fixture
def pipeline(
    database: str,
    kafka: str,
    topic_prefix: str,
    opensearch: str,
    index_prefix: str,
    tmp_path: Path,
    run_cdc: RunCdc,
) -> Pipeline:
    """The example's own settings, on the servers of the tests."""
    document: dict[str, Any] = tomllib.loads((LEDGER / "cdc.toml").read_text(encoding="utf-8"))
    document["name"] = topic_prefix
    document["source"]["dsn"] = database
    document["log"]["bootstrap_servers"] = kafka
    document["capture"] = {"http_address": ""}
    document["spark"] = {"checkpoint": str(tmp_path / "checkpoints"), "http_address": ""}
    document["views"]["balance"] = {"sql": str(LEDGER / "balance.sql"), "state": str(tmp_path / "state")}
    document["sinks"]["search"] |= {"url": opensearch, "prefix": index_prefix}
    made = Pipeline(tmp_path, run_cdc, document)
    made.sql((LEDGER / "ledger.sql").read_text(encoding="utf-8"), inbox.create_sql())
    return made


@pytest.mark.slow
def test_the_ledger_keeps_every_cent_and_every_version(pipeline: Pipeline, spawn: Spawn) -> None:
    for command in ("init", "snapshot"):
        pipeline.good(command)
    capture = spawn("cdc", "--config", pipeline.config, "run")
    sink = spawn("cdc", "--config", pipeline.config, "sink", "--views")

    def transfers() -> Spawned:
        servers, name = pipeline.document["log"]["bootstrap_servers"], pipeline.document["name"]
        program = ["-m", "examples.ledger.transfers", pipeline.dsn, servers, name]
        return spawn("python", *program, env={"PYTHONPATH": str(ROOT)})

    follower = transfers()
    with psycopg.connect(pipeline.dsn, autocommit=True) as session:
        for account in ACCOUNTS:
            commands.execute(session, account, Command("open"))
            commands.execute(session, account, Command("deposit", Decimal(100)))
            session.execute("insert into holders values (%s, 'first', 'x@example.org')", [account])
        for seed in range(3):
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(lambda number: _customer(pipeline.dsn, number), range(3 * seed, 3 * seed + 3)))
            wait_until(lambda: _carried_out(session) > 0, 60, "a transfer to be carried out")
            follower.kill()
            follower = transfers()
        # Money on its way to an account that closes comes back.
        commands.execute(session, "a0", Command("deposit", Decimal(9)))
        _close(session, "a5")
        commands.execute(session, "a0", Command("send", Decimal(9), "last", "a5"))
        wait_until(lambda: _under_way(session) == 0, 120, lambda: follower.stderr[-2000:] + capture.stderr[-2000:])
        for name in ("second", "third"):
            session.execute("update holders set name = %s where account = 'a1'", [name])
        [lsn] = session.execute("select pg_current_wal_insert_lsn()::text").fetchone() or [""]
        ended = session.execute(_ENDS).fetchall()
        assert ended
        assert {(sent, received, amount) for sent, received, amount in ended} == {(1, 1, Decimal(0))}
        kinds = Counter(kind for (kind,) in session.execute("select type from ledger_events"))
        assert min(kinds["TransferReceived"], kinds["TransferReturned"]) > 0
        accounts = {name: commands.load(session, name) for name in ACCOUNTS}
        [paid] = session.execute("select sum(amount) from ledger_events where transfer is null").fetchone() or [None]
    assert sum(account.balance for account in accounts.values()) == paid
    waited = pipeline.cdc("wait", "search", str(lsn), "--table", "view.balance", timeout_s=200)
    assert waited.returncode == 0, waited.stderr + sink.stderr[-3000:]
    assert _searched(pipeline) == {name: (account.balance, account.version) for name, account in accounts.items()}
    assert pipeline.cdc("verify", timeout_s=120).returncode == Exit.OK
    changes = pipeline.good("events", "holders", "--history", "--from-beginning", "--until-caught-up", "--json")
    versions = [row for line in changes.splitlines() if (row := orjson.loads(line).get("after"))]
    assert [row["name"] for row in versions if row["account"] == "a1"] == ["first", "second", "third"], changes[:500]
    assert follower.terminate() == 0


def _customer(dsn: str, seed: int) -> None:
    """Commands of somebody, in a hurry: many accounts are everybody's."""
    chance = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as session:
        for number in range(15):
            kind = chance.choice(["deposit", "withdraw", "send", "send"])
            amount = Decimal(chance.randint(1, 12_000)) / 100
            other = chance.choice([*ACCOUNTS, "nobody"]) if kind == "send" else None
            with suppress(Refused):
                command = Command(kind, amount, f"{seed}-{number}" if kind == "send" else None, other)
                commands.execute(session, chance.choice(ACCOUNTS), command)


def _close(session: commands.Connection, name: str) -> None:
    """Money that arrives meanwhile is withdrawn as well."""

    def closed() -> bool:
        with suppress(Refused):
            commands.execute(session, name, Command("withdraw", commands.load(session, name).balance))
        with suppress(Refused):
            commands.execute(session, name, Command("close"))
        return not commands.load(session, name).is_open

    wait_until(closed, 60, "the account to be empty")


def _under_way(session: commands.Connection) -> int:
    ended = session.execute(_ENDS).fetchall()
    return sum(sent != received for sent, received, _ in ended)


def _carried_out(session: commands.Connection) -> int:
    return sum(received for _, received, _ in session.execute(_ENDS))


def _searched(pipeline: Pipeline) -> dict[str, tuple[Decimal, int]]:
    store = pipeline.document["sinks"]["search"]
    with OpenSearch(store["url"]) as client:
        found = client.search(index=f"{store['prefix']}-view.balance", body={"size": 100})
    rows = [hit["_source"] for hit in found["hits"]["hits"]]
    return {row["account"]: (Decimal(str(row["balance"])), int(row["events"])) for row in rows}


OPEN = [Event("Opened"), Event("Deposited", Decimal(10))]


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (Command("open"), "opened before"),
        (Command("withdraw", Decimal(11)), "has 10 only"),
        (Command("send", Decimal(1), "t"), "an account that it goes to"),
        (Command("deposit", Decimal(-1)), "more than nothing"),
        (Command("close"), "still has 10"),
        (Command("dance", Decimal(1)), "knows no dance"),
    ],
)
def test_a_command_is_checked_against_the_account(command: Command, word: str) -> None:
    with pytest.raises(Refused, match=word):
        decide(account_of(OPEN), command)
    with pytest.raises(Refused, match="not open"):
        decide(Account(), Command("deposit", Decimal(1)))
