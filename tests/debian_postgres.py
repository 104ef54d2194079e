"""A server of the machine's own PostgreSQL, older than the wheel's, as Debian's packages install it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from cdc.stack.local import free_ports
from cdc.stack.supervised_server import ordinary_account
from tests.waiting import wait_until

INSTALLS = Path("/usr/lib/postgresql")
SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical", "fsync=off")


def install(extensions: Collection[str] = (), below: int = 1000) -> Path | None:
    """The programs of the newest PostgreSQL from 15 on, older than ``below``, that has the extensions."""
    found = [folder for folder in INSTALLS.glob("*") if folder.name.isdigit() and 15 <= int(folder.name) < below]
    for folder in sorted(found, key=lambda path: int(path.name), reverse=True):
        share = Path("/usr/share/postgresql") / folder.name / "extension"
        if all((share / f"{name}.control").exists() for name in extensions):
            return folder / "bin"
    return None


@contextmanager
def debian_postgres(folder: Path, extensions: Collection[str] = (), below: int = 1000) -> Iterator[str]:
    """Connection string of a server of its own, which ends with this process. Skips where there is no such one."""
    bin_folder = install(extensions, below)
    if bin_folder is None:
        wanted = f" with {', '.join(extensions)}" if extensions else ""
        pytest.skip(f"no PostgreSQL from 15 on and below {below}{wanted} in {INSTALLS}: apt-get install postgresql-15")
    account = ordinary_account()
    data = account.own_folder(folder) / "data"
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
