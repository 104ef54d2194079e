"""The Spark session: on the project's own Java and jars, tuned for small batches, quiet, and without a secret in it."""

from __future__ import annotations

import logging
import os
import pwd
import re
import socket
import socketserver
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from cdc.process.errors import ConfigError
from cdc.process.untrusted_text import quoted
from sinks.warehouse.warehouse_spark import has_class
from spark.session.failures import SparkLost, cause

LOG_FILE = "spark.log"
ERR_FILE = "spark.err"
"""Lines that the JVM prints by itself. Empty on a good day."""

_JVM_END_S = 20.0
_LOOK_S = 2.0
_REACH_S = 5.0
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_STANDALONE = "spark://"
_MASTER = re.compile(
    r"(local(\[[\w*]+(,\s*\d+)?\])?|yarn|k8s://\S+|spark://[^,\s]+:\d+(,[^,\s]+:\d+)*|local-cluster\[.*\])$"
)
# The JVM only keeps time and passes Arrow on: what its second compiler would win, compiling costs twice over.
_LOCAL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss8m"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """The parameters that a session is started with.

    ``jars``: Spark's Kafka source and what it needs. ``java_home``: whose ``bin/java`` runs the driver. The
    environment's unless set. ``log_folder``: where Spark's own log goes. ``conf``: the user's own, over ours.
    ``java_options``: more of the driver's. ``ui``: whether Spark's pages are served, on loopback. ``needs``: classes
    that a JVM which ``spark-submit`` started has to have, each with the jar that brings it.
    """

    name: str
    master: str
    driver_memory: str
    log_folder: Path
    jars: tuple[Path, ...] = ()
    java_home: Path | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    java_options: tuple[str, ...] = ()
    ui: bool = False
    needs: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether driver and executors are one process of this machine."""
        return self.master.startswith("local")

    def with_java_options(self, options: tuple[str, ...]) -> SessionSpec:
        """The same with these options for the driver and for its executors, which are JVMs of their own."""
        executors = " ".join([*options, self.conf.get(_EXECUTOR_OPTIONS, "")]).strip()
        conf = {**self.conf, _EXECUTOR_OPTIONS: executors} if options else self.conf
        return replace(self, java_options=(*self.java_options, *options), conf=conf)


def configuration(spec: SessionSpec, log4j: Path) -> dict[str, str]:
    """Every Spark setting that we choose. Never a secret, because these stand in the driver's arguments."""
    options = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Dheadrace.log={spec.log_folder / LOG_FILE}",
        *spec.java_options,
    ]
    conf = {
        "spark.master": spec.master,
        "spark.app.name": f"headrace-{spec.name}",
        "spark.jars": ",".join(str(jar) for jar in spec.jars),
        "spark.driver.memory": spec.driver_memory,
        "spark.driver.extraJavaOptions": " ".join([*([_LOCAL_JVM] if spec.local else []), *options]),
        "spark.sql.session.timeZone": "UTC",
        **_FRESH,
        **_LASTING,
        # A slice is bounded by us, in bytes of its records, and one record alone may be larger than Spark's 1 GB.
        "spark.driver.maxResultSize": "0",
        # PySpark writes a task that is larger to a file, with the secrets in it, for as long as the application runs.
        "spark.broadcast.UDFCompressionThreshold": "1g",
    }
    if spec.local:
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Executors of a cluster may not find the module at their start. Here they are this process's own.
        conf |= {"spark.python.daemon.module": "spark.session.python_daemon"}
    return conf | {"spark.ui.enabled": str(spec.ui).lower()} | dict(spec.conf)


_FRESH = {
    # The largest part of a small batch is bookkeeping. Each of these was measured (see the manual).
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Delta writes its log through the other one, which would leave a checksum beside each commit.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.locality.wait": "0s",
    "spark.sql.adaptive.enabled": "false",
    # How often a query at rest asks Kafka. Each question costs the JVM and the broker about 4 ms: at 5 ms three stores
    # at rest took 0.7 of a processor, at 20 ms 0.4, and changes were no sooner visible.
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.metricsEnabled": "false",
    # A query that works off a backlog must not hold the small batches of the others.
    "spark.scheduler.mode": "FAIR",
}

_LASTING = {
    # An application that runs for months keeps no history of its batches in memory.
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "500",
    "spark.ui.retainedDeadExecutors": "10",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.ui.retainedProgressUpdates": "10",
    "spark.sql.streaming.ui.retainedQueries": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # A batch that waits for a store that says nothing is given up.
    "spark.sql.streaming.stopTimeout": "15s",
    # Where a user switches the UI on, it must not show what the Kafka options hold.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|jaas|sasl|keystore|\.key$",
    "spark.sql.redaction.options.regex": r"(?i)url|secret|password|token|access[.]?key|jaas|sasl|keystore|\.key$",
}


def start_session(spec: SessionSpec) -> SparkSession:
    """A session of this process. ConfigError, naming the log, when Spark does not start, and naming the jars when
    ``spark-submit`` was not given all that are needed.

    Sets JAVA_HOME, and PYSPARK_PYTHON unless it is set, of this process. Spark and its workers read them. Under
    ``spark-submit`` the JVM runs already: master, memory, jars and Java options are then the submitter's.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not submitted():
        require_name(os.getuid())
        require_master(spec.master)
    if spec.java_home is not None:
        os.environ["JAVA_HOME"] = str(spec.java_home)
    quiet_client()
    _make_folder(spec.log_folder)
    with as_file(files("spark.session") / "log4j2.properties") as log4j:
        conf = configuration(spec, log4j.absolute())
        if not submitted():
            _on_loopback(spec, conf)
        session = _adopted(conf, spec.needs) if submitted() else _launched(spec, conf)
        quiet_server(session.sparkContext._accumulatorServer)
        return session


def require_name(uid: int, of: Callable[[int], object] = pwd.getpwuid) -> None:
    """ConfigError where a user has no name on this machine, as in an image that is run as any number: Hadoop's login,
    which Spark begins with, fails there without a word about it. ``of``: raises KeyError for such a user."""
    try:
        of(uid)
    except KeyError:
        raise ConfigError(
            f"Spark does not start as user {uid}, who has no name on this machine",
            hint="run it as a user that /etc/passwd has, or add a line for this one there",
        ) from None


def _on_loopback(spec: SessionSpec, conf: Mapping[str, str]) -> None:
    """Have Spark's pages on this machine alone: they are served on SPARK_LOCAL_IP, and else on every address.

    That is also the address that a driver gives to executors unless it is told which: on a cluster it has to be told.
    """
    if spec.local or (conf["spark.ui.enabled"] == "true" and "spark.driver.host" in conf):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    elif spec.ui:
        raise ConfigError(
            "[spark] ui needs to know at which address executors reach the driver",
            hint='set "spark.driver.host" in [spark.conf] to a name or address of this machine',
        )


def require_master(master: str) -> None:
    """ConfigError for no master of Spark's. SparkLost where none of a standalone cluster's takes a connection: Spark
    itself tries for a minute, and then says so in its own log."""
    if not _MASTER.match(master):
        raise ConfigError(
            f"[spark] master {master} is none that Spark knows",
            hint="local[2], spark://HOST:7077, k8s://https://HOST or yarn",
        )
    if not master.startswith(_STANDALONE):
        return
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), _REACH_S):
            return
    raise SparkLost(
        f"no master of Spark's answers at {master}",
        hint="start it, or name the right one in [spark] master: a master's first page shows its URL",
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"the checkpoint folder {folder} cannot be written: {error.strerror}",
            hint="name another one in [spark] checkpoint, or give this user the right to write there",
        ) from None


def submitted() -> bool:
    """Whether ``spark-submit`` started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def own_python() -> bool:
    """Whether workers on this machine run this very Python, and so have what it has."""
    return os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable


def _launched(spec: SessionSpec, conf: Mapping[str, str]) -> SparkSession:
    loaded = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    err = spec.log_folder / ERR_FILE
    try:
        with err.open("wb") as talk:
            # A session of its own: a Ctrl-C at the terminal is ours to handle, between batches.
            popen = {"stdout": talk, "stderr": talk, "start_new_session": True}
            gateway = launch_gateway(loaded, popen)  # type: ignore[no-untyped-call]
        context = SparkContext(conf=loaded, gateway=gateway)
    except (PySparkException, Py4JError) as failure:
        # The JVM may have refused a setting of the user's, as a heap that is too small.
        raise ConfigError(
            f"Spark did not start: {quoted(cause(str(failure)))}",
            hint=f"correct [spark]; its own words are in {err} and {spec.log_folder / LOG_FILE}",
        ) from None
    return SparkSession(context)


def _adopted(conf: Mapping[str, str], needs: Mapping[str, str]) -> SparkSession:
    """In the JVM that spark-submit started: what can still be set is set, and the submitter's word goes first."""
    # Before it SparkConf knows nothing of what the submitter has set.
    SparkContext._ensure_initialized()
    # At the start, and not at a merge behind rows that the first batch has written without one.
    require_brought(needs, partial(has_class, SparkContext._jvm))
    given = SparkConf()
    for name, value in settings_beside(dict(given.getAll()), conf, own_python=own_python()).items():
        given.set(name, value)
    session = SparkSession(SparkContext.getOrCreate(given))
    session.sparkContext.setLogLevel("ERROR")
    return session


def quiet_client() -> None:
    """Silence py4j about a callback that raised and about a JVM that is gone, and PySpark about statements that failed:
    we report all ourselves, once. PySpark would print the whole message, which may hold a row's value."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    # It has a handler of its own, which drops all. Some of it goes to the root's logger.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_not_of_py4j)


def quiet_server(server: socketserver.BaseServer) -> None:
    """Silence the server that hears what tasks counted: it prints a traceback when the JVM, its client, is killed. The
    end of the JVM is reported by us."""
    server.handle_error = _silent  # type: ignore[method-assign]


def _silent(request: object, client_address: object) -> None:
    """Say nothing."""


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def require_jvm(session: SparkSession, log_file: str) -> None:
    """SparkLost when the JVM that we started has ended."""
    process = _process(session)
    if process is not None and process.poll() is not None:
        raise _lost(process.poll(), log_file)


@contextmanager
def telling_of_jvm(session: SparkSession, log_file: str) -> Iterator[None]:
    """Turn errors of the body into SparkLost where the JVM, or the connection to it, is gone."""
    try:
        yield
    except (Py4JError, PySparkException, OSError, EOFError) as failure:
        process = _process(session)
        code = None
        if process is not None:
            # It may have ended a moment ago.
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK_S)
        if code is None and not isinstance(failure, Py4JError | ConnectionError | EOFError):
            raise
        raise _lost(code, log_file) from None


def _lost(code: int | None, log_file: str) -> SparkLost:
    how = "is out of reach" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    return SparkLost(
        f"Spark's JVM {how}",
        hint=f"start it again: it goes on where it was. Often the kernel ends it for its memory; see {log_file}",
    )


def _process(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """The JVM, where we started it."""
    gateway: Any = session.sparkContext._gateway
    return getattr(gateway, "proc", None)


def end_session(session: SparkSession, timeout_s: float = _JVM_END_S) -> None:
    """End the session, and the JVM with it. Never raises. ``timeout_s``: how long the JVM may take."""
    gateway: Any = session.sparkContext._gateway
    with suppress(Exception):
        session.stop()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    # The JVM ends with its standard input.
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # The next session of this process needs a JVM of its own.
    SparkContext._gateway, SparkContext._jvm = None, None


_EXTENSIONS = "spark.sql.extensions"
_SUBMITTERS = ("spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions", "spark.jars")
_DAEMON = "spark.python.daemon.module"


def settings_beside(given: Mapping[str, str], ours: Mapping[str, str], *, own_python: bool) -> dict[str, str]:
    """Those of ours that can still be set, the submitter's word going first. Extensions of Spark's SQL are had
    together. ``own_python``: whether workers on this machine run the driver's Python.

    >>> settings_beside({"spark.master": "yarn", "a": "1"}, {"a": "2", "b": "3"}, own_python=True)
    {'b': '3'}
    """
    theirs = {*given, *_SUBMITTERS, *([] if own_python else [_DAEMON])}
    if not given.get("spark.master", "").startswith("local"):
        # The settings may say nothing of the cluster.
        theirs |= {"spark.driver.host", "spark.driver.bindAddress", _DAEMON}
    kept = {name: value for name, value in ours.items() if name not in theirs}
    named = ",".join(one[_EXTENSIONS] for one in (given, ours) if _EXTENSIONS in one)
    extensions = dict.fromkeys(filter(None, named.split(",")))
    return {**kept, **({_EXTENSIONS: ",".join(extensions)} if extensions else {})}


def require_brought(needs: Mapping[str, str], has: Callable[[str], bool]) -> None:
    """ConfigError, with every jar that is missing. ``needs``: classes, each with the jar that brings it. ``has``:
    whether there is such a class."""
    missing = list(dict.fromkeys(jar for name, jar in needs.items() if not has(name)))
    if missing:
        raise ConfigError(
            f"spark-submit was not given the jars that these sinks need: {', '.join(missing)}",
            hint=f'--jars "$(cdc sink --jars)" has them all, and so has --packages {",".join(missing)}',
        )
