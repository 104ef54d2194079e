"""Postgres refuses root: both ways round that work, and so does an ordinary user, without changing any account."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cdc.stack.local import free_ports
from cdc.stack.postgres import PostgresPart
from cdc.stack.supervised_server import Account, PartFiles, ordinary_account, outside_folder
from tests.programs import Spawn
from tests.waiting import wait_until

_as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
_NOBODY = 65534
_SYSTEM_PYTHON = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")


@pytest.fixture
def other_account(tmp_path: Path) -> Iterator[Account]:
    account = ordinary_account(namespaces=False)
    yield account
    shutil.rmtree(outside_folder(tmp_path / "postgres"), ignore_errors=True)
    for program in Path("/var/tmp").glob("headrace-program-*"):
        shutil.rmtree(program) if program.is_dir() else program.unlink()


@_as_root
def test_without_namespaces_an_account_of_the_machine_serves(other_account: Account, tmp_path: Path) -> None:
    assert other_account.uid
    place = PartFiles(folder=tmp_path / "postgres", log=tmp_path / "log", ports=free_ports(["postgres"]))
    part = PostgresPart(place, account=other_account)
    command = part.prepare()
    argv = command.account.ending_with_parent(command.argv, death_signal=command.death_signal, parent=os.getpid())
    with place.log.open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log, cwd="/") as server:
        try:
            wait_until(part.ready, 20, lambda: place.log.read_text(encoding="utf-8"))
            assert Path(f"/proc/{server.pid}").stat().st_uid == other_account.uid
            with psycopg.connect(part.connection()["dsn"]) as connection:
                assert connection.execute("show wal_level").fetchone() == ("logical",)
        finally:
            server.send_signal(command.stop_signal)


@pytest.mark.slow
@_as_root
def test_an_ordinary_user_brings_the_stack_up(spawn: Spawn, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = Path(__file__).parents[3]
    packages = sysconfig.get_path("purelib")
    home = Path("/var/tmp") / f"headrace-test-{os.getpid()}"
    ordinary = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    seen = subprocess.run(
        [*ordinary, str(_SYSTEM_PYTHON), "-c", "import os, sys; os.listdir(sys.argv[1])", packages],
        capture_output=True,
        check=False,
    )
    if seen.returncode != 0:
        pytest.skip("an ordinary user cannot read this checkout, or has no Python of this version")
    home.mkdir()
    os.chown(home, _NOBODY, _NOBODY)
    environment = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": f"{root}:{packages}"}
    cdc = [*ordinary, "env", "PYTHONDONTWRITEBYTECODE=1", str(_SYSTEM_PYTHON), "-m", "cdc", "stack"]
    folder = home / "stack"
    try:
        up = spawn(*cdc, "up", "--dir", folder, "--free-ports", "--only", "postgres,redis", env=environment)
        assert up.wait() == 0, up.stderr
        assert (folder / "pgpass").stat().st_uid == _NOBODY
        down = spawn(*cdc, "down", "--dir", folder, "--wipe", env=environment)
        assert down.wait() == 0, down.stderr
        assert not folder.exists()
    finally:
        shutil.rmtree(home)
