"""Real servers for every test that asks for them, each started once, on first use, and a fresh corner for each test.

``pytest --stack-dir DIR`` uses a stack that runs already (``cdc stack up --dir DIR``), which saves its start.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings as hypothesis_settings

from cdc.process.logs import OURS
from cdc.stack.local import Connections, free_ports
from tests import emptied, last_lines, limits
from tests.examples import examples
from tests.fork_server import ForkServer
from tests.fresh import new_database, new_index_prefix, new_redis_url, new_topic_prefix
from tests.order import folders, in_turn
from tests.processes import ProcessStack, WorkerStack
from tests.programs import RunCdc, Spawn, Spawned
from tests.waiting import TIME_SCALE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEVELS = {name: logging.getLogger(name).level for name in (*OURS, "headrace.sinks", "connectors.kafka.clients")}
pytest_runtest_protocol = limits.pytest_runtest_protocol
pytest_unconfigure = last_lines.pytest_unconfigure
_COMMON = "CDC_TEST_COMMON"
"""Names the folder of the servers that all workers share to them."""
_COMMON_SHARE = 7
"""Of the ports: workers have the numbers below."""
_OWN_JVM = {"spark_session", "connect"}
_SLOW_WORDS = ("mark.slow", "spark_session", "connect: str", '"connect"')
_SLOW_BY_FIXTURE = [Path(__file__).parent / name for name in ("contract", "integration/spark", "integration/debezium")]
_MARKED_FOLDERS = ("unit", "contract", "golden", "integration", "e2e", "faults", "packaging", "docs")
# How long an example takes says how busy the machine is.
hypothesis_settings.register_profile("headrace", deadline=None, max_examples=examples(100))
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
    group.addoption("--one-kafka", action="store_true", help="one set of the servers with a JVM for all workers")
    group.addoption("--together", action="store_true", help="files that share a JVM go to one worker")
    group.addoption("--keep-logs", type=Path, help="copy the servers' logs into this folder at the end")
    group.addoption("--rewrite", action="store_true", help="write expected output anew instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    """The process that has workers owns the servers that they share. They end with it, also when it is killed."""
    if config.getoption("--one-kafka") and _COMMON not in os.environ:
        common = ProcessStack(Path(tempfile.mkdtemp(prefix="headrace-stack")))
        common.start(ports=free_ports(share=_COMMON_SHARE), durable=False)
        config.add_cleanup(common.wipe)
        os.environ[_COMMON] = str(common.folder)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A slow run opens no file without a slow test: to import them all takes each worker half a minute. Where fixtures
    of a folder or its list of stores make tests slow, all are opened."""
    if not config.getoption("--together") or not collection_path.is_file():
        return None
    if any(collection_path.is_relative_to(folder) for folder in _SLOW_BY_FIXTURE):
        return None
    if not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if any(word in text for word in _SLOW_WORDS) else True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """How the process that has workers gives files to them. None: as ``--dist`` says."""
    if not config.getoption("--together"):
        return None
    from tests.together import TogetherScheduling  # noqa: PLC0415 - of use to the process that has workers alone

    return TogetherScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests and all that they import are made, and nothing of it goes. To look for what could would take a
    third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's folder is its marker, and decides when it comes.

    What asks for Spark or for Kafka Connect is slow: each is a JVM that takes half a minute of CPU to start.
    """
    items[:] = in_turn(items)
    for item in items:
        folder = folders(item)[:1]
        if folder and folder[0] in _MARKED_FOLDERS:
            item.add_marker(folder[0])
        if not _OWN_JVM.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


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


@pytest.fixture(autouse=True)
def sockets_of_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """PySpark leaves the sockets of its results and threads to the collector, which would close them in whichever test
    runs by then, with a warning: they end with the test that asked for Spark. Without asking, none may start it."""
    before = _sparks()
    yield
    if "spark_session" in request.fixturenames:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    else:
        assert _sparks() == before, "a test that starts Spark in its own process has to ask for spark_session"


def _sparks() -> bool:
    """Whether a session of Spark runs in this process."""
    module = sys.modules.get("pyspark")
    return module is not None and module.SparkContext._active_spark_context is not None


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
        common = os.environ.get(_COMMON)
        number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
        local.start(ports=free_ports(share=int(number)), durable=False)
        try:
            yield local if common is None else WorkerStack(local, ProcessStack(Path(common)))
        finally:
            keep: Path | None = request.config.getoption("--keep-logs")
            if keep is not None:
                worker = os.environ.get("PYTEST_XDIST_WORKER", "one")
                shutil.copytree(local.folder / "logs", keep / worker, dirs_exist_ok=True)
            local.wipe()


@pytest.fixture(scope="session")
def postgres(stack: Stack) -> Iterator[str]:
    """libpq connection string of the server's superuser, to the database ``postgres``."""
    dsn = stack.ensure("postgres")["postgres"]["dsn"]
    yield dsn
    emptied.drop_all(dsn)


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


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Connection string of a new, empty database; dropped afterwards with its slots and sessions."""
    with new_database(postgres) as dsn:
        yield dsn


@pytest.fixture
def topic_prefix(kafka: str) -> Iterator[str]:
    """A pipeline's name that no other test has; all its topics are deleted afterwards."""
    with new_topic_prefix(kafka) as prefix:
        yield prefix


@pytest.fixture
def redis_url(redis_server: str) -> Iterator[str]:
    """URL of a cache database of one's own, empty; emptied afterwards."""
    with new_redis_url(redis_server) as url:
        yield url


@pytest.fixture
def index_prefix(opensearch: str) -> Iterator[str]:
    """A prefix of index names that no other test has; its indexes are deleted afterwards."""
    with new_index_prefix(opensearch) as prefix:
        yield prefix


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


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer | None]:
    """What forks ``cdc`` commands; None, in folders that say so, where each is to be started from cold."""
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def spawn(tmp_path: Path, fork_server: ForkServer | None) -> Iterator[Spawn]:
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
        if fork_server is not None and words[0] == "cdc":
            program = Spawned(fork_server.start(words[1:], out, err, env=environment, cwd=Path.cwd()), out, err)
        else:
            program = Spawned.cold([*own.get(words[0], words[:1]), *words[1:]], out, err, environment)
        started.append(program)
        return program

    yield start
    for program in started:
        if program.process.poll() is None:
            program.kill()


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as ``cdc sink`` starts it, once for all tests: a process has one. A test's own statements have few
    tasks. The sinks open sessions of their own beside it, to which that does not apply."""
    from tests.lake_sessions import lake_spark, with_few_tasks  # noqa: PLC0415 - Spark's client, of use to some alone

    with lake_spark(tmp_path_factory.mktemp("spark")) as session:
        with_few_tasks(session)
        yield session


@pytest.fixture
def run_cdc(tmp_path: Path, fork_server: ForkServer | None) -> RunCdc:
    """Run one ``cdc`` command to its end: ``run_cdc("check", "--json", cwd=folder)``; checks nothing."""
    numbers = itertools.count(1)

    def run(
        *arguments: str | Path, timeout_s: float = 120.0, env: Mapping[str, str] | None = None, cwd: Path = tmp_path
    ) -> subprocess.CompletedProcess[str]:
        words, environment = [str(word) for word in arguments], {**os.environ, **(env or {})}
        if fork_server is None:
            argv = [sys.executable, "-m", "cdc", *words]
            return subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=timeout_s * TIME_SCALE,
                check=False,
                cwd=cwd,
                env=environment,
            )
        number = next(numbers)
        out, err = tmp_path / f"run{number}.out", tmp_path / f"run{number}.err"
        process = fork_server.start(words, out, err, env=environment, cwd=cwd)
        try:
            code = process.wait(timeout_s * TIME_SCALE)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            process.args, code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8")
        )

    return run
