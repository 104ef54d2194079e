"""Parts that do not answer, each alone and every pair: no command says anything of what it did not see (H109)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cdc.cli.app import run
from cdc.process.errors import Exit
from cdc.record.progress import Watermark
from cdc.settings.model import load
from cdc.stack.local import free_ports
from sinks.contract.stores import open_store
from tests.fresh import new_database, new_redis_url, new_topic_prefix
from tests.settings_file import write_settings

PARTS = ("kafka", "postgres", "cache", "search", "reports")
AWAY = [(), *((part,) for part in PARTS), *combinations(PARTS, 2)]
SHOWN = 0x10


@dataclass(frozen=True)
class Shop:
    """A pipeline with a snapshot, whose stores show an LSN."""

    folder: Path
    document: dict[str, Any]
    dsn: str

    def without(self, *parts: str) -> Path:
        """A settings file in which these parts are where nobody listens."""
        port = free_ports()["kafka"]
        document: dict[str, Any] = orjson.loads(orjson.dumps(self.document))
        places = {
            "kafka": (document["log"], "bootstrap_servers", f"127.0.0.1:{port}"),
            "postgres": (document["source"], "dsn", f"host=127.0.0.1 port={port} dbname=shop user=cdc"),
            "cache": (document["sinks"]["cache"], "url", f"redis://127.0.0.1:{port}/0"),
            "search": (document["sinks"]["search"], "url", f"http://127.0.0.1:{port}"),
            "reports": (document["sinks"]["reports"], "url", f"postgresql+psycopg://cdc@127.0.0.1:{port}/x"),
        }
        for part in parts:
            section, name, value = places[part]
            section[name] = value
        return write_settings(self.folder, document)

    def slots(self) -> list[str]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            found = connection.execute("select slot_name from pg_replication_slots where database = current_database()")
            return [name for (name,) in found]


@pytest.fixture(scope="module")
def shop(
    postgres: str, kafka: str, redis_server: str, opensearch: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    with ExitStack() as stack:
        dsn = stack.enter_context(new_database(postgres))
        name = stack.enter_context(new_topic_prefix(kafka))
        folder = tmp_path_factory.mktemp("away")
        there = conninfo_to_dict(dsn)
        secret = folder / "password"
        secret.write_text(_password(dsn), encoding="utf-8")
        secret.chmod(0o600)
        address = f"{there['user']}@{there['host']}:{there['port']}/{there['dbname']}"
        document = {
            "name": name,
            "source": {"dsn": dsn, "tables": ["public.orders"]},
            "log": {"bootstrap_servers": kafka, "partitions": 1},
            "capture": {"http_address": ""},
            "sinks": {
                "cache": {"kind": "redis", "url": stack.enter_context(new_redis_url(redis_server))},
                "search": {"kind": "opensearch", "url": opensearch},
                "reports": {"kind": "sql", "url": f"postgresql+psycopg://{address}", "password": f"file:{secret}"},
            },
        }
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create table orders (id int primary key)")
        made = Shop(folder, document, dsn)
        config = str(made.without())
        for command in (["init"], ["snapshot", "--workers", "1"]):
            assert run(["--config", config, *command]) == 0
        settings = load(Path(config))
        for sink in settings.sinks:
            with closing(open_store(sink, settings)) as store:
                store.watermarks.write(Watermark(epoch=1, lsn=2**40))
        yield made


def _password(dsn: str) -> str:
    """That of a passfile, as the local stack's connection strings name one."""
    parts = conninfo_to_dict(dsn)
    if "passfile" not in parts:
        return str(parts.get("password", ""))
    return Path(str(parts["passfile"])).read_text(encoding="utf-8").splitlines()[0].rpartition(":")[2]


@pytest.fixture
def cdc(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command in this process; its exit code, and all that it printed."""

    def call(config: Path, *arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(["--config", str(config), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out + err

    return call


Cdc = Callable[..., tuple[int, str]]

# What may not be said of a part that was not read: absence, state, ownership; and no advice that rests on it.
UNSEEN = {
    "kafka": [
        r"did not make", r"pg_drop_replication_slot", r"new-epoch", r"is gone", r"will be made", r"free to be made",
        r"snapshot +none", r"log +holds", r"topics? (is|are) ", r"consistent", r"bootstrapping", r"drop the slot",
        r"no dead letters",
    ],
    "postgres": [
        r"slot .*: none", r"is gone", r"pg_drop_replication_slot", r"nobody reads", r"new-epoch", r"publication .* is",
        r"0 B behind",
    ],
    "cache": [r"cache .*(empty|consistent|filling)", r"cache holds"],
    "search": [r"search .*(empty|consistent|filling)", r"search holds"],
    "reports": [r"reports .*(empty|consistent|filling)", r"reports holds"],
}  # fmt: skip


def assert_silent_about(parts: tuple[str, ...], words: str) -> None:
    for part in parts:
        for pattern in UNSEEN[part]:
            said = [line for line in words.splitlines() if re.search(pattern, line)]
            assert said == [], f"{part} was away, and yet: {said}"


@pytest.mark.parametrize("away", AWAY, ids="+".join)
def test_h109_status_says_nothing_of_what_it_did_not_see(shop: Shop, cdc: Cdc, away: tuple[str, ...]) -> None:
    config = shop.without(*away)
    code, words = cdc(config, "status")
    assert code == (Exit.UNAVAILABLE if away else Exit.DIFFERENCE), words
    assert_silent_about(away, words)
    for part in PARTS:
        if part not in away:
            assert re.search(_SEEN[part], words), (part, words)
    if away:
        first = next(part for part in PARTS if part in away)
        (error,) = [line for line in words.splitlines() if line.startswith("error: ")]
        assert _NAMED[first] in error
    _, document = cdc(config, "status", "--json")
    shown = orjson.loads(document[: document.rindex("}\n") + 1])
    names = {"kafka": "log", "postgres": "source"}
    assert sorted(shown["unknown"]) == sorted(names.get(part, part) for part in away)


_SEEN = {
    "kafka": r"snapshot +complete",
    "postgres": r"slot .*, read by nobody, wal reserved",
    "cache": r"cache +100/0",
    "search": r"search +100/0",
    "reports": r"reports +100/0",
}
_NAMED = {"kafka": "Kafka", "postgres": "Postgres", "cache": "cache:", "search": "search:", "reports": "reports:"}


@pytest.mark.parametrize("away", AWAY, ids="+".join)
def test_h109_check_gives_no_advice_on_what_it_did_not_see(shop: Shop, cdc: Cdc, away: tuple[str, ...]) -> None:
    code, words = cdc(shop.without(*away), "check")
    assert code == (Exit.UNAVAILABLE if away else Exit.OK), words
    assert_silent_about(away, words)
    failed = [line for line in words.splitlines() if line.lstrip().startswith("fail ")]
    assert len(failed) == len(away), words


@pytest.mark.parametrize("away", [one for one in AWAY if "cache" not in one], ids="+".join)
def test_h109_a_token_long_shown_is_shown_whoever_is_away(shop: Shop, cdc: Cdc, away: tuple[str, ...]) -> None:
    code, words = cdc(shop.without(*away), "wait", "cache", f"0/{SHOWN:X}", "--timeout", "0")
    assert code == Exit.OK, words
    assert "100/0" in words
    assert ("epoch is not known" in words) == ("kafka" in away)


@pytest.mark.parametrize("away", [one for one in AWAY if "kafka" in one], ids="+".join)
def test_h109_a_token_not_shown_names_the_log_that_is_away(shop: Shop, cdc: Cdc, away: tuple[str, ...]) -> None:
    code, words = cdc(shop.without(*away), "wait", "cache", "FFFF/0", "--timeout", "0")
    assert code == Exit.UNAVAILABLE, words
    assert "was not reached" not in words


def test_h109_no_slot_is_dropped_whose_owner_is_not_known(shop: Shop, cdc: Cdc) -> None:
    slots = shop.slots()
    assert slots
    code, words = cdc(shop.without("kafka"), "drop", "--yes")
    assert code == Exit.UNAVAILABLE
    assert "whether this pipeline made it is not known" in words
    assert shop.slots() == slots
    with psycopg.connect(shop.dsn) as connection:
        assert connection.execute("select count(*) from pg_publication").fetchone() == (1,)


@pytest.mark.parametrize("command", [("dead", "list"), ("events",), ("verify",), ("run",), ("sink",), ("init",)])
def test_h109_what_needs_the_log_names_it_first(shop: Shop, cdc: Cdc, command: tuple[str, ...]) -> None:
    for away in (("kafka",), ("kafka", "cache")):
        code, words = cdc(shop.without(*away), *command)
        assert code == Exit.UNAVAILABLE, words
        assert_silent_about(away, words)
        error = next(line for line in words.splitlines() if line.startswith("error: "))
        assert "cannot reach Kafka at 127.0.0.1:" in error
        assert "bootstrap_servers" in words


def test_status_is_watched_whoever_is_away(shop: Shop, cdc: Cdc) -> None:
    """A look each interval, on one session; a part that does not answer ends nothing, and has no rate."""
    code, words = cdc(shop.without("cache"), "status", "--watch", "--json", "--looks", "3", "--every", "0.2")
    assert code == Exit.UNAVAILABLE, words
    looks = [orjson.loads(line) for line in words.splitlines() if line.startswith("{")]
    assert [look["pace"] is None for look in looks] == [True, False, False]
    assert {name for look in looks[1:] for name in look["pace"]["stores"]} == {"search", "reports"}
    assert looks[-1]["pace"]["seconds"] > looks[1]["pace"]["seconds"] > 0
