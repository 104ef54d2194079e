"""A stranger's walk: the README's words from a database of one's own to three stores, each command as it stands."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import psycopg
import pytest
from psycopg import sql

from cdc.stack.postgres import install_folder
from tests.fresh import fresh_name
from tests.waiting import wait_until

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
OWN = README.partition("Then follow a database of yours.")[2].partition("To keep it,")[0]
PASSWORD = "of-a-stranger"
START_S = 240.0


def commands() -> list[str]:
    """The commands of the part, in their order, a continued one in one line."""
    lines = re.sub(r"\\\n\s+", "", OWN).splitlines()
    return [line.partition("$ ")[2].partition("   #")[0].strip() for line in lines if line.startswith("    $ ")]


def test_the_walk_is_five_commands() -> None:
    assert [re.findall(r"^\w+(?: \w+)?", one)[0] for one in commands()] == [
        "cdc config", "psql", "export CDC_SOURCE_PASSWORD", "cdc up", "cdc verify",
    ]  # fmt: skip


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """A name for the role that the rights make; the stranger's is cdc."""
    name = fresh_name()
    yield name
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


class Stranger:
    """A shell in an empty folder, in which places of the README are those of this test."""

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        self.folder = folder
        self.said = b""
        self._places = places
        programs = f"{Path(sys.executable).parent}:{install_folder() / 'bin'}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": programs}

    def exports(self, command: str, secret: str) -> None:
        """A variable is set by hand for the commands that follow."""
        name, dots = command.removeprefix("export ").split("=")
        assert dots == "..."
        self._environment[name] = secret

    def words(self, command: str) -> str:
        """The command on this machine."""
        for place, here in self._places.items():
            command = command.replace(place, here)
        return command

    def types(self, command: str) -> str:
        """Run it to its end. What it said, all of it."""
        done = subprocess.run(
            ["sh", "-c", self.words(command)], cwd=self.folder, env=self._environment, capture_output=True, text=True,
            check=False, timeout=START_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def leaves_running(self, command: str, terminal: int) -> subprocess.Popen[bytes]:
        words = ["sh", "-c", f"exec {self.words(command)}"]
        return subprocess.Popen(
            words, cwd=self.folder, env=self._environment, stdin=terminal, stdout=terminal, stderr=terminal
        )

    def hears(self, terminal: int) -> None:
        """Until nobody is at the other end of the terminal."""
        try:
            for part in iter(partial(os.read, terminal, 65536), b""):
                self.said += part
        except OSError:
            return  # as Linux says it


@pytest.fixture
def stranger(
    database: str, kafka: str, topic_prefix: str, redis_url: str, opensearch: str, role: str, tmp_path: Path
) -> Iterator[Stranger]:
    places = {
        '"host=127.0.0.1 dbname=shop user=me"': f'"{database}"',
        "127.0.0.1:9092": kafka,
        "redis://127.0.0.1:6379/0": redis_url,
        "http://127.0.0.1:9200": opensearch,
        "cdc config new": f"cdc config new --name {topic_prefix} --role {role}",
    }
    assert [place for place in places if place not in OWN] == [], "the README names other places"
    yield Stranger(tmp_path, places)
    with psycopg.connect(database, autocommit=True) as owner:
        if owner.execute("select from pg_roles where rolname = %s", [role]).fetchone() is not None:
            owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))


@pytest.mark.slow
@pytest.mark.long
def test_the_readme_leads_to_three_verified_stores(
    stranger: Stranger, database: str, topic_prefix: str, role: str
) -> None:
    new, rights, secret, up, verify = commands()
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("create table orders (id int primary key, status text)")
        owner.execute("insert into orders select n, 'open' from generate_series(1, 500) n")
    assert "follows 1 tables. Run cdc-rights.sql" in stranger.types(new)
    asked = ' -c "\\password cdc"'
    assert rights.endswith(asked), "psql asks for it at the keyboard: it stands in no list of processes"
    stranger.types(rights.removesuffix(asked))
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("alter role {} password {}").format(sql.Identifier(role), sql.Literal(PASSWORD)))
    stranger.exports(secret, PASSWORD)
    ours, theirs = pty.openpty()
    running = stranger.leaves_running(up, theirs)
    os.close(theirs)
    hearing = Thread(target=stranger.hears, args=(ours,), name="hearing")
    hearing.start()
    try:
        wait_until(lambda: b"Type the slot's name" in stranger.said, START_S, lambda: stranger.said[-3000:])
        os.write(ours, f"cdc_{topic_prefix}\n".encode())
        wait_until(lambda: b"consistent" in stranger.said, START_S, lambda: stranger.said[-3000:])
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("update orders set status = 'paid' where id <= 50; delete from orders where id > 450")
        told = stranger.types(verify)
        assert len(re.findall(r"^public\.orders +(?:cache|search|warehouse) +450 +450 +0 +0 +0$", told, re.M)) == 3
        running.send_signal(signal.SIGINT)
        assert running.wait(90) == 0, stranger.said[-3000:]
    finally:
        running.kill()
        running.wait()
        hearing.join()
        os.close(ours)
