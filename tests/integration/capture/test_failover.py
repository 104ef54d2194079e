"""A failover slot: kept by a standby, gone on with when that is promoted, refused where changes were lost (H55)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import Exit, IdentityError
from cdc.record.progress import Watermark
from cdc.record.tokens import Token, TokenRelation, standing
from cdc.stack.local import free_ports
from cdc.stack.postgres import SETTINGS, install_folder
from cdc.stack.supervised_server import ordinary_account
from cdc.wiring import open_state
from cdc.wiring.pipeline import build_snapshot, prepare_pipeline
from connectors.operate.new_epoch import accept
from connectors.postgres.server.catalog_facts import read_server
from connectors.postgres.server.connection_token import token
from snapshot.source.ports import NoReport
from tests.integration.capture.later import ask, over
from tests.integration.capture.pipeline import Pipeline, refused
from tests.programs import Spawn
from tests.waiting import wait_until

TABLE = "create table t (id int primary key, v text)"


@dataclass
class Standby:
    """A hot standby that keeps failover slots when it is told to."""

    pipeline: Pipeline
    dsn: str
    slot: str

    def ask(self, statement: str) -> object:
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=2) as session:
            row = session.execute(statement.encode()).fetchone()
            return row[0] if row else None

    def keep_slot(self) -> None:
        """Return when it has the pipeline's slot, to stay."""
        kept = f"select count(*) from pg_replication_slots where slot_name = '{self.pipeline.slot}' and not temporary"

        def synced() -> bool:
            self.pipeline.execute("select pg_log_standby_snapshot()")
            with suppress(psycopg.errors.ObjectNotInPrerequisiteState):  # It has not received so much yet.
                self.ask("select pg_sync_replication_slots()")
            return self.ask(kept) == 1

        wait_until(synced, 30)

    def promote(self) -> None:
        assert self.ask("select pg_promote(true, 30)") is True

    def take_its_place(self) -> None:
        """The pipeline's source is this server from now on."""
        document = self.pipeline.document
        self.pipeline.document = {**document, "source": {**document["source"], "dsn": self.dsn}}
        self.pipeline.dsn = self.dsn


@contextmanager
def standby(
    pipeline: Pipeline, folder: Path, spawn: Spawn, *, waited_for: bool, name: str = "standby"
) -> Iterator[Standby]:
    """``waited_for``: the primary sends capture only what this standby has received."""
    account, port, slot = ordinary_account(), free_ports()["postgres"], f"{name}_{pipeline.slot}"
    data, programs = account.own_folder(folder / name) / "data", install_folder() / "bin"
    own = {"cwd": "/", "user": account.uid, "group": account.gid}
    where = ["-d", pipeline.dsn, "-D", str(data), "-R", "-C", "-S", slot, "-c", "fast", "-X", "stream"]
    backup = [*account.prefix, str(programs / "pg_basebackup"), *where]
    subprocess.run(backup, check=True, capture_output=True, **own)  # type: ignore[call-overload]
    settings = {**SETTINGS, "hot_standby_feedback": "on"}
    options = [f"--{name}={value}" for name, value in settings.items()]
    argv = [str(programs / "postgres"), "-D", str(data), "-p", str(port), *options]
    server = spawn(*account.ending_with_parent(argv, death_signal=signal.SIGQUIT, parent=os.getpid()))
    found = Standby(pipeline, make_conninfo(pipeline.dsn, port=port), slot)
    primary = pipeline.dsn
    receives = "select count(*) from pg_replication_slots where slot_name = %s and active"
    try:
        wait_until(lambda: pipeline.one(receives, slot), 30, lambda: server.stderr)
        if waited_for:
            named = sql.Literal(slot).as_string()
            pipeline.execute(f"alter system set synchronized_standby_slots = {named}", "select pg_reload_conf()")
        yield found
    finally:
        server.process.send_signal(signal.SIGINT)
        with psycopg.connect(primary, autocommit=True) as session:
            session.execute("alter system reset synchronized_standby_slots")
            session.execute("select pg_reload_conf()")
            server.wait(40)
            wait_until(lambda: _drop(session, slot), 30)


def _drop(session: psycopg.Connection[tuple[object, ...]], slot: str) -> bool:
    try:
        session.execute("select pg_drop_replication_slot(%s)", [slot])
    except psycopg.errors.ObjectInUse:
        return False
    return True


@pytest.fixture
def kept(pipeline: Pipeline) -> Pipeline:
    """A pipeline whose slot standbys keep, with rows from a snapshot."""
    if int(pipeline.one("select current_setting('server_version_num')")) < 170000:
        pytest.skip("standbys keep slots from PostgreSQL 17 on")
    pipeline.document["source"]["failover"] = True
    pipeline.prepare_with_rows(TABLE, "insert into t select g, 'first' from generate_series(1, 50) g")
    return pipeline


def failover(pipeline: Pipeline) -> bool:
    return bool(pipeline.one("select failover from pg_replication_slots where slot_name = %s", pipeline.slot))


def standbys_away(pipeline: Pipeline) -> tuple[str, ...]:
    """Those that ``cdc check`` names."""
    with pipeline.session() as session:
        return read_server(session).standbys_away


def token_of(pipeline: Pipeline) -> Token:
    with pipeline.session() as session:
        return token(session)


@pytest.mark.slow
def test_h55_a_promoted_standby_with_the_slot_is_followed(kept: Pipeline, tmp_path: Path, spawn: Spawn) -> None:
    assert failover(kept)
    with standby(kept, tmp_path, spawn, waited_for=True) as other:
        run = kept.stream()
        kept.execute("insert into t values (100, 'before')", "update t set v = 'before' where id <= 10")
        kept.settle()
        other.keep_slot()
        assert standbys_away(kept) == ()
        shared = token_of(kept)
        # What the slot's copy on the standby has not heard of: it is sent again, and known.
        kept.execute("update t set v = 'not yet kept' where id = 11", "delete from t where id = 12")
        kept.settle()
        other.promote()
        # Committed on the former server alone. Its capture is not sent it: the standby never had it.
        kept.execute("insert into t values (200, 'vanishes')", "update t set v = 'vanishes' where id <= 3")
        lost = token_of(kept)
        wait_until(lambda: kept.said(run, "waiting_for_standby"), 30, lambda: run.stderr)
        assert standbys_away(kept) == (other.slot,)
        assert run.terminate() == 0
        other.take_its_place()
        kept.execute("insert into t values (300, 'after')", "update t set v = 'after' where id between 3 and 5")
        with pytest.raises(IdentityError, match="a promoted standby answers"):
            build_snapshot(kept.settings, NoReport(), workers=1).run()
        again = kept.stream()
        said = kept.said(again, "promoted_server")
        assert said is not None
        assert said["timeline"] == 2
        kept.execute("delete from t where id > 40 and id < 50")
        kept.settle()
        kept.assert_equal("t")
        assert kept.slot_state().timeline == 2
        assert again.terminate() == 0
        # A store that has read all of this says so of each token.
        progress, own = kept.progress(), token_of(kept)
        assert progress is not None
        mark = Watermark(epoch=progress.epoch, lsn=2**60, lineage=progress.lineage)
        assert [standing(one, mark) for one in (shared, own, lost)] == [
            TokenRelation.SHOWN, TokenRelation.SHOWN, TokenRelation.LOST,
        ]  # fmt: skip
        assert (shared.timeline, lost.timeline, own.timeline) == (1, 1, 2)
        with kept.capturing():
            kept.execute("insert into t values (400, 'a plain start')")
            kept.settle()
        kept.assert_equal("t")


@pytest.mark.slow
def test_h55_h6_a_promoted_standby_behind_the_log_is_refused(kept: Pipeline, tmp_path: Path, spawn: Spawn) -> None:
    """Nothing made the primary wait for the standby, so capture was ahead of it."""
    with standby(kept, tmp_path, spawn, waited_for=False) as other:
        run = kept.stream()
        kept.execute("insert into t values (100, 'before')")
        kept.settle()
        other.keep_slot()
        other.promote()
        kept.execute("insert into t values (200, 'vanishes')")
        kept.settle()
        assert run.terminate() == 0
        other.take_its_place()
        text = refused(kept.start(), Exit.IDENTITY, "the promoted server goes on from", "were lost")
        assert "cdc init --new-epoch" in text
        assert kept.slot_state().timeline == 1
        kept.new_epoch()
        build_snapshot(kept.settings, NoReport(), workers=1).run()
        with kept.capturing():
            kept.execute("insert into t values (300, 'after')")
            kept.settle()
        kept.assert_equal("t")


@pytest.mark.slow
def test_h55_a_promoted_standby_without_the_slot_is_refused(kept: Pipeline, tmp_path: Path, spawn: Spawn) -> None:
    with standby(kept, tmp_path, spawn, waited_for=False) as other:
        other.promote()
        other.take_its_place()
        refused(kept.start(), Exit.IDENTITY, "the pipeline was made on 1", "--new-epoch")


@pytest.mark.slow
def test_h192_a_second_promoted_standby_is_not_the_first(kept: Pipeline, tmp_path: Path, spawn: Spawn) -> None:
    """Both take timeline 2. Changes of the second one stand at LSNs that the log has of the first one."""
    with (
        standby(kept, tmp_path, spawn, waited_for=False) as first,
        standby(kept, tmp_path, spawn, waited_for=False, name="twin") as second,
    ):
        with kept.capturing():
            kept.execute("insert into t values (100, 'before')")
            kept.settle()
            first.keep_slot()
            second.keep_slot()
        first.promote()
        kept.execute("insert into t values (200, 'vanishes')")
        wait_until(lambda: second.ask("select count(*) from t where id = 200") == 1, 30)
        second.promote()
        first.take_its_place()
        with kept.capturing():
            kept.execute("insert into t values (300, 'of the first')", "delete from t where id <= 10")
            kept.settle()
        kept.assert_equal("t")
        second.ask("insert into t values (400, 'of the second') returning id")
        second.ask(
            "with more as (insert into t select g, repeat('x', 200) from generate_series(1000, 9999) g"
            " returning id) select count(*) from more"
        )
        second.take_its_place()
        refused(kept.start(), Exit.IDENTITY, "promoted", "--new-epoch")
        first.take_its_place()
        with kept.capturing():
            kept.execute("insert into t values (500, 'again of the first')")
            kept.settle()
        kept.assert_equal("t")


@pytest.mark.slow
def test_h205_a_history_that_was_removed_is_not_missed(kept: Pipeline, tmp_path: Path, spawn: Spawn) -> None:
    """The server does not need the file any more, so whoever tidies pg_wal may have removed it."""
    with standby(kept, tmp_path, spawn, waited_for=True) as other:
        with kept.capturing():
            other.keep_slot()
        other.promote()
        other.take_its_place()
        with kept.capturing():
            kept.execute("insert into t values (100, 'of the promoted')")
            kept.settle()
        history = Path(kept.one("show data_directory")) / "pg_wal" / "00000002.history"
        history.unlink()
        with kept.capturing():
            kept.execute("insert into t values (200, 'without its history')")
            kept.settle()
        kept.assert_equal("t")
        slot = kept.slot_state()
        assert slot.history
        unnoted = replace(slot, history=None)
        open_state(kept.settings).write([(unnoted.key(), unnoted.to_json())])
        refused(kept.start(), Exit.IDENTITY, "has lost the history of its timeline 2", "00000002.history")


WAITS = """
select count(*) from pg_stat_activity
where datname = current_database() and application_name = %s and query ~ %s
"""


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["cdc capture", "cdc capture window"])
def test_h55_h38_rows_read_beside_the_stream_survive_no_failover(
    kept: Pipeline, tmp_path: Path, spawn: Spawn, reader: str
) -> None:
    """A value left out of an update, and rows of a later snapshot, are read at the head: ahead of the standby."""
    kept.execute(
        "create table docs (id int primary key, n int, body text)",
        "alter table docs alter body set storage external",
        "insert into docs select g, 0, repeat('a', 5000) from generate_series(1, 5) g",
    )
    prepare_pipeline(kept.settings)
    run = kept.stream()
    with standby(kept, tmp_path, spawn, waited_for=True) as other:
        over(kept, ask(kept, "public.docs"))
        kept.settle()
        other.keep_slot()
        run.process.send_signal(signal.SIGSTOP)
        if reader == "cdc capture":
            kept.execute("update docs set n = 1 where id = 1")
        fence = kept.fence()
        received = "select restart_lsn - '0/0' from pg_replication_slots where slot_name = %s"
        wait_until(lambda: kept.one(received, other.slot) > fence, 30)
        other.promote()
        kept.execute("update docs set body = repeat('b', 5000) where id <= 3")
        asked = ask(kept, "public.docs", keys=[["2"]], id="snapshot:public.docs:keys:1")
        run.process.send_signal(signal.SIGCONT)
        wait_until(lambda: kept.one(WAITS, reader, "synchronized_standby_slots"), 30, lambda: run.stderr)
        run.kill()
        other.take_its_place()
        if reader != "cdc capture":
            open_state(kept.settings).write([(asked.key(), replace(asked, state="cancelled").to_json())])
        again = kept.stream()
        kept.settle()
        kept.assert_equal("docs")
        assert again.terminate() == 0


@pytest.mark.slow
def test_h55_capture_alters_a_slot_that_was_made_without(pipeline: Pipeline) -> None:
    pipeline.prepare(TABLE)
    assert not failover(pipeline)
    pipeline.document["source"]["failover"] = True
    with pipeline.capturing():
        pipeline.execute("insert into t values (1, 'a')")
        pipeline.settle()
        assert failover(pipeline)
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_x12_a_slot_of_the_cluster_manager_is_accepted(pipeline: Pipeline, tmp_path: Path, spawn: Spawn) -> None:
    """It keeps one on the standby by itself, as Patroni does. One that stands beyond the log is refused."""
    pipeline.prepare_with_rows(TABLE, "insert into t select g, 'first' from generate_series(1, 50) g")
    with standby(pipeline, tmp_path, spawn, waited_for=False) as other:
        run = pipeline.stream()
        made = f"select pg_create_logical_replication_slot('{pipeline.slot}', 'pgoutput')"
        with ThreadPoolExecutor() as beside:
            # A standby makes a slot when its primary says which transactions run.
            making = beside.submit(other.ask, made)

            def is_made() -> bool:
                pipeline.execute("select pg_log_standby_snapshot()")
                return making.done()

            wait_until(is_made, 60)
        pipeline.execute("update t set v = 'before' where id <= 10", "delete from t where id = 12")
        pipeline.settle()
        assert run.terminate() == 0
        reached = pipeline.one("select pg_current_wal_lsn()")
        wait_until(lambda: other.ask(f"select pg_last_wal_replay_lsn() >= '{reached}'::pg_lsn") is True, 30)
        other.promote()
        other.take_its_place()
        refused(pipeline.start(), Exit.IDENTITY, "LSNs mean nothing here", "--accept-promotion")
        successor = accept(pipeline.settings, SYSTEM_CLOCK)
        assert successor is not None
        assert successor.slot.timeline == 2
        assert accept(pipeline.settings, SYSTEM_CLOCK) is None
        with pipeline.capturing():
            pipeline.execute("insert into t values (300, 'after')", "delete from t where id > 40")
            pipeline.settle()
        pipeline.assert_equal("t")
        assert pipeline.slot_state().timeline == 2
