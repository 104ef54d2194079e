"""Real servers for every test that asks for them, each started once, on first use, and a fresh corner for each test.

``pytest --stack-dir DIR`` uses a stack that runs already (``cdc stack up --dir DIR``), which saves its start.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import psycopg
import pytest
import redis as redis_client
import requests
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import settings as hypothesis_settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from cdc.logs import OURS
from cdc.stack.account import ANYBODY
from cdc.stack.free_ports import free_ports
from cdc.stack.local import Connections
from cdc.stack.redis import DATABASES
from tests import limits
from tests.nursery import Forked, Nursery
from tests.order import folders, in_turn
from tests.processes import ProcessStack
from tests.waiting import wait_until

_LEVELS = {name: logging.getLogger(name).level for name in (*OURS, "headrace.sinks", "connectors.kafka.clients")}
pytest_runtest_protocol = limits.pytest_runtest_protocol
_MARKED_FOLDERS = ("unit", "contract", "golden", "integration", "e2e", "faults", "packaging", "docs")
# How long an example takes says how busy the machine is.
hypothesis_settings.register_profile("headrace", deadline=None)
hypothesis_settings.load_profile("headrace")


class Stack(Protocol):
    """The servers under the tests, local or in containers."""

    def ensure(self, *parts: str) -> Connections:
        """Start what of these does not run yet; returns how to reach all that run."""

    def start_part(self, name: str) -> None:
        """Start a part that was stopped; its data stays."""

    def stop_part(self, name: str, *, kill: bool = False) -> None:
        """End one part, cleanly or at once."""

    def paused(self, name: str) -> AbstractContextManager[None]:
        """One part stands still meanwhile; its connections stay open."""

    def inside(self, name: str) -> str:
        """host:port of a part as Kafka Connect reaches it."""

    def hand_to_connect(self, name: str, text: str) -> str:
        """A file that only Kafka Connect needs to read, and its path there; ``name`` is the test's own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headrace")
    group.addoption("--stack", choices=("local", "docker"), default="local", help="servers: processes or containers")
    group.addoption("--stack-dir", type=Path, help="use the stack that runs in this folder")
    group.addoption("--keep-logs", type=Path, help="copy the servers' logs into this folder at the end")
    group.addoption("--rewrite", action="store_true", help="write expected output anew instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's folder is its marker, and decides when it comes."""
    items[:] = in_turn(items)
    for item in items:
        folder = folders(item)[:1]
        if folder and folder[0] in _MARKED_FOLDERS:
            item.add_marker(folder[0])


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """What is there when a file's tests begin stays: the collector, which capture and many tests call, need not look at
    it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def levels() -> None:
    """A command that ran in this process, for an earlier test or a fixture, left levels that hide a test's warnings."""
    for name, level in _LEVELS.items():
        if logging.getLogger(name).level != level:
            logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether expected output is to be written anew."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The session's servers, none running yet. They end with this process, also when it is killed."""
    shared: Path | None = request.config.getoption("--stack-dir")
    if request.config.getoption("--stack") == "docker":
        from tests.containers import ContainerStack  # noqa: PLC0415 - only where there is a Docker engine

        with ContainerStack(tmp_path_factory.mktemp("containers")) as containers:
            yield containers
    elif shared is not None:
        yield ProcessStack(shared)
    else:
        local = ProcessStack(tmp_path_factory.mktemp("stack"))
        number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
        local.start(ports=free_ports(share=int(number)), durable=False)
        try:
            yield local
        finally:
            keep: Path | None = request.config.getoption("--keep-logs")
            if keep is not None:
                worker = os.environ.get("PYTEST_XDIST_WORKER", "one")
                shutil.copytree(local.folder / "logs", keep / worker, dirs_exist_ok=True)
            local.wipe()


@pytest.fixture(scope="session")
def postgres(stack: Stack) -> str:
    """libpq connection string of the server's superuser, to the database ``postgres``."""
    return stack.ensure("postgres")["postgres"]["dsn"]


@pytest.fixture(scope="session")
def kafka(stack: Stack) -> str:
    """The broker's address."""
    return stack.ensure("kafka")["kafka"]["bootstrap_servers"]


@pytest.fixture(scope="session")
def redis_server(stack: Stack) -> str:
    """The cache server's URL; a test takes ``redis_url``."""
    return stack.ensure("redis")["redis"]["url"]


@pytest.fixture(scope="session")
def opensearch(stack: Stack) -> str:
    """The search server's URL; a test keeps to its ``index_prefix``."""
    return stack.ensure("opensearch")["opensearch"]["url"]


@pytest.fixture(scope="session")
def connect(stack: Stack) -> str:
    """Kafka Connect's URL, Debezium among its plugins."""
    return stack.ensure("connect")["connect"]["url"]


def fresh_name() -> str:
    """A name that no other test has: lower-case letters and digits."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Connection string of a new, empty database; dropped afterwards with its slots and sessions."""
    with new_database(postgres) as dsn:
        yield dsn


@contextlib.contextmanager
def new_database(postgres: str) -> Iterator[str]:
    """The fixture ``database``, for longer than a test."""
    name = fresh_name()
    with psycopg.connect(postgres, autocommit=True) as admin:
        # Copied as files, it leaves little behind in memory for the checkpoint that dropping it is.
        admin.execute(sql.SQL("create database {} strategy file_copy").format(sql.Identifier(name)))
    yield make_conninfo(postgres, dbname=name)
    wait_until(lambda: _dropped(postgres, name), 60, f"database {name} dropped")


def _dropped(postgres: str, name: str) -> bool:
    """Dropped now; not yet when the server just went away, because it comes back."""
    try:
        with psycopg.connect(postgres, autocommit=True) as admin:
            drop_database(admin, name)
    except psycopg.OperationalError:
        return False
    return True


def drop_database(admin: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """Drop a database that may still have slots, prepared transactions and sessions."""
    admin.execute(
        "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots"
        " where database = %s and active_pid is not null",
        [name],
    )
    admin.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", [name])
    prepared = admin.execute("select gid from pg_prepared_xacts where database = %s", [name]).fetchall()
    if prepared:
        with psycopg.connect(admin.info.dsn, dbname=name, password=admin.info.password, autocommit=True) as inside:
            for (gid,) in prepared:
                inside.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))
    admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def topic_prefix(kafka: str) -> Iterator[str]:
    """A pipeline's name that no other test has; all its topics are deleted afterwards."""
    with new_topic_prefix(kafka) as prefix:
        yield prefix


@contextlib.contextmanager
def new_topic_prefix(kafka: str) -> Iterator[str]:
    """The fixture ``topic_prefix``, for longer than a test."""
    prefix = fresh_name()
    yield prefix
    admin = AdminClient({"bootstrap.servers": kafka})
    topics = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(prefix)]
    for deletion in admin.delete_topics(topics).values() if topics else ():
        with contextlib.suppress(KafkaException):  # gone already
            deletion.result()


@pytest.fixture
def redis_url(redis_server: str) -> Iterator[str]:
    """URL of a cache database of one's own, empty; emptied afterwards."""
    with new_redis_url(redis_server) as url:
        yield url


@contextlib.contextmanager
def new_redis_url(redis_server: str) -> Iterator[str]:
    """The fixture ``redis_url``, for longer than a test."""
    base = redis_server.rsplit("/", 1)[0]
    with redis_client.Redis.from_url(redis_server) as registry:
        numbers = random.SystemRandom().sample(range(1, DATABASES), DATABASES - 1)
        number = next(n for n in numbers if registry.set(f"taken:{n}", "1", nx=True, ex=3600))
        with redis_client.Redis.from_url(f"{base}/{number}") as own:
            own.flushdb()
            yield f"{base}/{number}"
            own.flushdb()
        registry.delete(f"taken:{number}")


@pytest.fixture
def index_prefix(opensearch: str) -> Iterator[str]:
    """A prefix of index names that no other test has; its indexes are deleted afterwards."""
    with new_index_prefix(opensearch) as prefix:
        yield prefix


@contextlib.contextmanager
def new_index_prefix(opensearch: str) -> Iterator[str]:
    """The fixture ``index_prefix``, for longer than a test."""
    prefix = fresh_name()
    yield prefix
    found = requests.get(f"{opensearch}/{prefix}*", params={"expand_wildcards": "all"}, timeout=30).json()
    for index in found:
        requests.delete(f"{opensearch}/{quote(index, safe='')}", timeout=30)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """An empty folder for Delta tables."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder


OTHER_STORE = Path(__file__).parent / "other_store"


@pytest.fixture
def other_store(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an installed package, put on the path, that brings a kind of sink of its own: ``folder``."""
    monkeypatch.syspath_prepend(str(OTHER_STORE))
    return OTHER_STORE


Process = subprocess.Popen[bytes] | Forked


class Spawn(Protocol):
    """Start a program that ends with the test, and with the test process even when that is killed."""

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> Spawned: ...


class Spawned:
    """A running program with its stdout and stderr in files."""

    def __init__(self, process: Process, out: Path, err: Path) -> None:
        self.process = process
        self.out = out
        self.err = err

    @classmethod
    def cold(cls, argv: Sequence[str], out: Path, err: Path, env: Mapping[str, str]) -> Spawned:
        """Started as any program; the kernel ends it with us."""
        tethered = ANYBODY.tethered(argv, death_signal=signal.SIGKILL, parent=os.getpid())
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(tethered, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=dict(env))
        return cls(process, out, err)

    @property
    def stdout(self) -> str:
        return self.out.read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self.err.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout_s: float = 60.0) -> int:
        """Its exit code; subprocess.TimeoutExpired past the time."""
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.process.kill()
        self.process.wait(30)

    def terminate(self, timeout_s: float = 40.0) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery | None]:
    """What forks ``cdc`` commands; None, in folders that say so, where each is to be started from cold."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def spawn(tmp_path: Path, nursery: Nursery | None) -> Iterator[Spawn]:
    """Start programs beside the test: ``spawn("cdc", "run", "--config", path)``; what still runs is killed afterwards.

    ``cdc`` and ``python`` are those of this environment.
    """
    started: list[Spawned] = []
    numbers = itertools.count(1)
    own = {"cdc": [sys.executable, "-m", "cdc"], "python": [sys.executable]}

    def start(*argv: str | Path, env: Mapping[str, str] | None = None) -> Spawned:
        number = next(numbers)
        out, err = tmp_path / f"{number}.out", tmp_path / f"{number}.err"
        words, environment = [str(part) for part in argv], {**os.environ, **(env or {})}
        if nursery is not None and words[0] == "cdc":
            program = Spawned(nursery.start(words[1:], out, err, env=environment, cwd=Path.cwd()), out, err)
        else:
            program = Spawned.cold([*own.get(words[0], words[:1]), *words[1:]], out, err, environment)
        started.append(program)
        return program

    yield start
    for program in started:
        if program.process.poll() is None:
            program.kill()


# The session-scoped Spark session of tests/integration/spark stands in that folder's own conftest.py.
RunCdc = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_cdc(tmp_path: Path, nursery: Nursery | None) -> RunCdc:
    """Run one ``cdc`` command to its end: ``run_cdc("check", "--json", cwd=folder)``; checks nothing."""
    numbers = itertools.count(1)

    def run(
        *arguments: str | Path, timeout_s: float = 120.0, env: Mapping[str, str] | None = None, cwd: Path = tmp_path
    ) -> subprocess.CompletedProcess[str]:
        words, environment = [str(word) for word in arguments], {**os.environ, **(env or {})}
        if nursery is None:
            argv = [sys.executable, "-m", "cdc", *words]
            return subprocess.run(
                argv, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=cwd, env=environment
            )
        number = next(numbers)
        out, err = tmp_path / f"run{number}.out", tmp_path / f"run{number}.err"
        process = nursery.start(words, out, err, env=environment, cwd=cwd)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            process.args, code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )

    return run
