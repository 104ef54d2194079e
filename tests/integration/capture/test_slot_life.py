"""Whatever ends a slot is known within ten seconds, by an exit code and a way back (H4, H5, H26, H52, H53, H55)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit
from cdc.stack.local import free_ports
from cdc.stack.postgres import SETTINGS, install_folder
from cdc.stack.supervised_server import ordinary_account
from tests.integration.capture.pipeline import Pipeline, refused
from tests.programs import Spawn
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"
FOUND_S = 10.0


def end_its_sessions(pipeline: Pipeline) -> None:
    pipeline.execute(
        "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots"
        f" where slot_name = '{pipeline.slot}' and active_pid is not null"
    )


def drop_slot(pipeline: Pipeline) -> None:
    end_its_sessions(pipeline)
    pipeline.one("select pg_drop_replication_slot(%s)", pipeline.slot)


def make_slot_anew(pipeline: Pipeline) -> None:
    with pipeline.session() as session:
        session.execute(
            "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where slot_name = %s",
            [pipeline.slot],
        )
        session.execute("select pg_drop_replication_slot(%s)", [pipeline.slot])
        session.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [pipeline.slot])


def drop_publication(pipeline: Pipeline) -> None:
    """While nothing changes: no row will tell."""
    pipeline.execute(f"drop publication {pipeline.settings.publication}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (drop_slot, "does not exist any more"),
        (make_slot_anew, "the slot"),
        (drop_publication, "is gone"),
    ],
)
def test_h4_h5_h52_changes_of_the_slot_are_noticed_in_10_s(
    pipeline: Pipeline, happens: Callable[[Pipeline], None], words: str
) -> None:
    pipeline.prepare(TABLE)
    run = pipeline.stream()
    pipeline.execute("insert into t values (1, 'a')")
    pipeline.settle()
    began = SYSTEM_CLOCK.monotonic()
    happens(pipeline)
    text = refused(run, Exit.SLOT, words, timeout_s=FOUND_S)
    assert SYSTEM_CLOCK.monotonic() - began < FOUND_S
    assert "cdc init --new-epoch" in text


@pytest.mark.slow
def test_h53_capture_names_a_slot_that_was_idle_for_too_long(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    if int(pipeline.one("select current_setting('server_version_num')")) < 180000:
        pytest.skip("idle_replication_slot_timeout is new in PostgreSQL 18")
    pipeline.execute("alter system set idle_replication_slot_timeout = '1s'", "select pg_reload_conf()")
    try:
        reason = "select invalidation_reason from pg_replication_slots where slot_name = %s"

        def invalidated() -> bool:
            pipeline.execute("checkpoint")
            return bool(pipeline.one(reason, pipeline.slot) == "idle_timeout")

        wait_until(invalidated, 30)
        text = refused(pipeline.start(), Exit.SLOT, "gave up the slot", "idle_timeout", timeout_s=FOUND_S)
        assert "--new-epoch" in text
    finally:
        pipeline.execute("alter system reset idle_replication_slot_timeout", "select pg_reload_conf()")


@contextmanager
def standby(pipeline: Pipeline, folder: Path, spawn: Spawn) -> Iterator[str]:
    """A hot standby of the server; connection string of the same database on it."""
    account, port = ordinary_account(), free_ports()["postgres"]
    data, programs = account.own_folder(folder / "standby") / "data", install_folder() / "bin"
    own = {"cwd": "/", "user": account.uid, "group": account.gid}
    backup = [str(programs / "pg_basebackup"), "-d", pipeline.dsn, "-D", str(data), "-R", "-c", "fast", "-X", "stream"]
    subprocess.run([*account.prefix, *backup], check=True, capture_output=True, **own)  # type: ignore[call-overload]
    argv = [
        str(programs / "postgres"),
        "-D",
        str(data),
        "-p",
        str(port),
        *(f"--{name}={value}" for name, value in SETTINGS.items()),
    ]
    server = spawn(*account.ending_with_parent(argv, death_signal=signal.SIGQUIT, parent=os.getpid()))
    dsn = make_conninfo(pipeline.dsn, port=port)

    def answers() -> bool:
        with psycopg.connect(dsn, connect_timeout=2) as session:
            return session.execute("select pg_is_in_recovery()").fetchone() == (True,)

    wait_until(lambda: _quietly(answers), 30, lambda: server.stderr)
    try:
        yield dsn
    finally:
        server.terminate()


def _quietly(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except psycopg.OperationalError:
        return False


@pytest.mark.slow
def test_h26_h55_a_standby_is_refused_with_the_reason(pipeline: Pipeline, tmp_path: Path, spawn: Spawn) -> None:
    pipeline.prepare(TABLE)
    source = pipeline.document["source"]
    with standby(pipeline, tmp_path, spawn) as dsn:
        pipeline.document = {**pipeline.document, "source": {**source, "dsn": dsn}}
        refused(pipeline.start(), Exit.IDENTITY, "is a standby", "primary", timeout_s=FOUND_S)
        for command in ("init", "snapshot", ("init", "--new-epoch", "--yes")):
            words = (command,) if isinstance(command, str) else command
            run = pipeline.spawn("cdc", "--config", pipeline.config(), *words)
            assert run.wait(20) in (Exit.CONFIG, Exit.IDENTITY), run.stderr
            assert "standby" in run.stderr
