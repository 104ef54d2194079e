"""Sessions with the source in an ordinary week: passwords that rotate, poolers, other languages, trusted authority."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.errors import ConfigError, Exit, LogError, Retry
from cdc.settings.model import LogSettings, SourceSettings
from cdc.settings.setting_types import Secret
from cdc.stack.local import free_ports
from cdc.stack.supervised_server import ordinary_account
from connectors.kafka.stream_log import KafkaStreamLog
from connectors.postgres.server.connections import LOOK_LIMITS, PINNED, connect
from tests.debian_packages import libraries, unpacked
from tests.integration.capture.pipeline import Pipeline, refused
from tests.secured import login, secured_kafka
from tests.strangers import stranger
from tests.tls import encrypted, self_signed
from tests.waiting import wait_until

GERMAN = "Passwort-Authentifizierung für Benutzer »cdc« fehlgeschlagen"


def source(dsn: str, password: str | None = None) -> SourceSettings:
    return SourceSettings(dsn=dsn, tables=("public.*",), password=Secret(password) if password else None)


def look(settings: SourceSettings) -> None:
    connect(settings, options=LOOK_LIMITS).close()


class Rotation:
    """A role with a password that the test changes, the server first and its file later."""

    def __init__(self, pipeline: Pipeline, file: Path) -> None:
        self.pipeline, self.file, self.role = pipeline, file, f"rotating_{token_hex(4)}"
        self._password = ""
        pipeline.execute(f"create role {self.role} login superuser replication")
        self.server_changes()
        self.file_follows()
        self.dsn = make_conninfo(pipeline.dsn, user=self.role, passfile="/nowhere")

    def server_changes(self) -> None:
        self._password = token_hex(8)
        with self.pipeline.session() as session:
            word = sql.SQL("alter role {} password {}").format(sql.Identifier(self.role), sql.Literal(self._password))
            session.execute(word)
            # As where a server fails over: each session has to log in again.
            session.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [self.role])

    def file_follows(self) -> None:
        self.file.write_text(self._password + "\n")


@pytest.fixture
def rotation(pipeline: Pipeline, tmp_path: Path) -> Iterator[Rotation]:
    made = Rotation(pipeline, tmp_path / "password")
    yield made
    pipeline.execute(f"drop owned by {made.role}", f"drop role {made.role}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "command"])
def test_x4_capture_outlives_passwords_that_rotate(pipeline: Pipeline, rotation: Rotation, kind: str) -> None:
    """Three times the server changes before the file does, and each session is ended meanwhile."""
    reference = f"file:{rotation.file}" if kind == "file" else f"command:cat {rotation.file}"
    pipeline.document["source"] |= {"dsn": rotation.dsn, "password": reference}
    pipeline.prepare_with_rows("create table t (id int primary key, v text)", "insert into t values (0, 'x')")
    with pipeline.capturing() as capturing:
        for turn in range(1, 4):
            refusals = capturing.figures.errors["ConfigError"]
            rotation.server_changes()
            wait_until(lambda: capturing.figures.errors["ConfigError"] > refusals, 30)  # noqa: B023
            assert capturing.figures.phase == "reconnecting"
            assert "refuses the login" in capturing.figures.waiting_for
            rotation.file_follows()
            pipeline.execute(f"insert into t values ({turn}, 'x')")
            pipeline.settle()
    pipeline.assert_equal("t")


@pytest.mark.slow
def test_x4_a_command_waits_some_seconds_for_the_secret(pipeline: Pipeline, rotation: Rotation) -> None:
    """The program writes the right password behind its first, wrong one: as a file that comes late."""
    late = f"import pathlib; p = pathlib.Path({str(rotation.file)!r}); s = p.with_suffix('.asked'); " \
        "print(p.read_text().strip() if s.exists() else 'old'); s.touch()"  # fmt: skip
    with connect(source(rotation.dsn, f'command:{sys.executable} -c "{late}"')) as session:
        assert session.info.user == rotation.role


@pytest.mark.slow
def test_x4_kafka_refuses_a_login_at_once(tmp_path: Path) -> None:
    """The client itself would go on with the secret of its start, and say nothing."""
    with secured_kafka(tmp_path, ["cdc"]) as broker:
        wrong = login("cdc") | {"sasl.password": "old"}
        log = LogSettings(bootstrap_servers=broker.address, client=wrong)
        records = KafkaStreamLog(log, memory_limit=1024**2, waiting=lambda: None)
        with pytest.raises(LogError, match="refuses the login") as found:
            wait_until(lambda: records.acked(0.1) < 0, 10)
        assert (found.value.exit, found.value.retry) == (Exit.CONFIG, Retry.SECRET)
        records.close()


def german(request: bytes) -> bytes | None:
    """As a server that speaks German and refuses the password."""
    if request[4:8] == (80877103).to_bytes(4, "big") and len(request) == 8:
        return None
    fields = b"SFATAL\0VFATAL\0C28P01\0M" + GERMAN.encode() + b"\0\0"
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields


def test_x5_a_wrong_password_is_told_in_any_language() -> None:
    with stranger(german) as port, pytest.raises(ConfigError, match="refuses the login: Passwort") as found:
        look(source(f"host=127.0.0.1 port={port} user=cdc dbname=d password=x sslmode=disable gssencmode=disable"))
    assert (found.value.exit, found.value.retry) == (Exit.CONFIG, Retry.SECRET)


def test_x5_a_database_and_a_role_that_are_not_there(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="nowhere") as found:
        look(source(make_conninfo(pipeline.dsn, dbname="nowhere")))
    assert "check dbname" in found.value.hint
    with pytest.raises(ConfigError, match="refuses the login"):
        look(source(make_conninfo(pipeline.dsn, user="nobody", password="x")))


def test_x7_the_machine_s_authorities_are_trusted(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``sslrootcert=system`` the wheel's libpq looks where its builder had them."""
    certificate = self_signed(tmp_path)
    with encrypted(pipeline.dsn, certificate) as dsn:
        system = make_conninfo(dsn, sslrootcert="system")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.made))
        look(source(system))
        other = self_signed(tmp_path, "other")
        monkeypatch.setenv("SSL_CERT_FILE", str(other.made))
        with pytest.raises(ConfigError, match="is not trusted"):
            look(source(system))


class Pooler:
    """PgBouncer in front of the test's server. ``options``: lines of its ini file."""

    def __init__(self, pipeline: Pipeline, folder: Path, *options: str) -> None:
        program, environment = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin"), dict(os.environ)
        if program is None:
            tree = unpacked("pgbouncer", ["pgbouncer"], hint="install pgbouncer")
            program, environment = str(tree / "usr" / "sbin" / "pgbouncer"), environment | libraries(tree)
        to = conninfo_to_dict(pipeline.dsn)
        self.role, self.port = f"pooled_{token_hex(4)}", free_ports()["postgres"]
        pipeline.execute(f"create role {self.role} login superuser replication password 'word'")
        (folder / "users").write_text(f'"{self.role}" "word"\n')
        (folder / "pooler.ini").write_text(
            f"[databases]\n* = host={to['host']} port={to['port']}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = plain\nauth_file = {folder / 'users'}\n"
            f"logfile = {folder / 'pooler.log'}\n" + "".join(f"{line}\n" for line in options)
        )
        log = folder / "pooler.log"
        log.touch()
        argv = [program, str(folder / "pooler.ini")]
        words = ordinary_account().ending_with_parent(argv, death_signal=signal.SIGKILL, parent=os.getpid())
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL, env=environment)
        wait_until(self._answers, 10, log.read_text)
        self.dsn = f"host=127.0.0.1 port={self.port} user={self.role} password=word dbname={to['dbname']}"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture
def pooler(pipeline: Pipeline, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pooler]:
    made = Pooler(pipeline, tmp_path, *request.param)
    yield made
    made.close()
    pipeline.execute(f"drop owned by {made.role}", f"drop role {made.role}")


IGNORING = "ignore_startup_parameters = options,extra_float_digits"


@pytest.mark.parametrize(
    ("pooler", "why"),
    [
        (["pool_mode = session"], "unsupported startup parameter"),
        (["pool_mode = session", IGNORING], "does not have the settings that were asked for"),
        (["pool_mode = transaction", IGNORING], "does not have the settings that were asked for"),
    ],
    indirect=["pooler"],
)
def test_x3_a_pooler_is_named(pipeline: Pipeline, pooler: Pooler, why: str) -> None:
    for replication in (False, True):
        with pytest.raises(ConfigError, match="a connection pooler or proxy answers") as found:
            connect(source(pooler.dsn), options=LOOK_LIMITS, replication=replication)
        assert "name the address of Postgres itself" in found.value.hint
        assert found.value.retry is Retry.NEVER
    pipeline.document["source"]["dsn"] = pooler.dsn
    refused(pipeline.start(), Exit.CONFIG, why)


@pytest.mark.parametrize(
    "pooler", [["pool_mode = transaction", IGNORING, "server_round_robin = 1"]], indirect=["pooler"]
)
def test_x3_a_session_that_changes_its_backend(pipeline: Pipeline, pooler: Pooler) -> None:
    """The role has every setting by itself, so that none is lost."""
    pipeline.execute(*(f"alter role {pooler.role} set {name} = '{value}'" for name, value in PINNED.items()))
    opened: list[psycopg.Connection[Any]] = [psycopg.connect(pooler.dsn) for _ in range(2)]
    for session in opened:
        session.execute("select 1")
    for session in opened:
        session.rollback()
        session.close()
    with pytest.raises(ConfigError, match="changes its server process"):
        look(source(pooler.dsn))
