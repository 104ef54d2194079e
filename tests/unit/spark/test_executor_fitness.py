"""Executors that cannot do a task's work are named with what they lack."""

from __future__ import annotations

import socket
import socketserver
from pathlib import Path

import pytest
from pyspark.logger import PySparkLogger

from cdc.process.errors import ConfigError, Exit
from spark.session.executor_fitness import Fitness, look, require_fit
from spark.session.failures import SparkLost, probe_failure, read_failure
from spark.session.spark_session import SessionSpec, quiet_client, quiet_server, require_master, start_session

HERE = Fitness("driver", "3.11.4", (), {"pyarrow": "26.0.1"})


def test_h420_pyspark_prints_no_statement_that_failed(capfd: pytest.CaptureFixture[str]) -> None:
    quiet_client()
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).exception("the value of a row", errorClass="CAST_INVALID_INPUT")
    assert capfd.readouterr() == ("", "")


class Ended(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        raise EOFError


def test_h425_a_killed_jvm_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """PySpark's server of counts has the JVM as its client."""
    with socketserver.TCPServer(("127.0.0.1", 0), Ended) as server:
        quiet_server(server)
        with socket.create_connection(("127.0.0.1", int(server.server_address[1]))):
            server.handle_request()
    assert capfd.readouterr() == ("", "")


def test_a_python_is_looked_at() -> None:
    found = look(["orjson", "no_such_module.inner"])
    assert found.lacks == ("no_such_module",)
    assert found.versions["pyarrow"]


def test_h423_the_module_that_another_one_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours come to executors by themselves: "install spark there" would help nobody."""
    (tmp_path / "ours_for_this_test.py").write_text("import no_such_library.inner", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert look(["ours_for_this_test"]).lacks == ("no_such_library",)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            HERE._replace(host="w1", python="3.12.1"),
            "the executors on w1 have Python 3.12.1, and the driver has 3.11.4",
        ),
        (
            HERE._replace(host="w1", lacks=("confluent_kafka",)),
            "the Python of the executors on w1 lacks the module confluent_kafka",
        ),
    ],
)
def test_h360_an_unfit_executor_is_named(one: Fitness, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        require_fit(HERE, [HERE, one])
    assert refused.value.message == said
    assert "PYSPARK_PYTHON" in refused.value.hint


def test_other_versions_are_told_and_work() -> None:
    other = HERE._replace(host="w1", python="3.11.9", versions={"pyarrow": "25.0.0", "orjson": "3"})
    assert require_fit(HERE, [other, other]) == ["the executors on w1 have pyarrow 25.0.0, the driver has 26.0.1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.",
            "the executors have Python 3.12, and the driver has 3.11",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", "the Python of the executors lacks the module pyarrow"),
        ("Failed to find data source: kafka. Please", "Spark has no Kafka source: a jar is missing"),
    ],
)
def test_h360_sparks_words_about_a_missing_part_are_ours(text: str, said: str) -> None:
    failure = read_failure("cache", text, "spark.log")
    assert failure.message == said and failure.hint and failure.exit == Exit.CONFIG


@pytest.mark.parametrize(
    "words", ["error=2, No such file", "error=13, Permission denied", "Exec failed, error: 2 (No)"]
)
def test_h423_a_python_that_executors_do_not_have_is_named(words: str) -> None:
    """By the probe alone: a query's executor that ends may have lost its folder."""
    text = f'Lost task 0.3 in stage 0.0: java.io.IOException: Cannot run program "./libraries/bin/python": {words}'
    refused = probe_failure(text)
    assert refused is not None and refused.exit == Exit.CONFIG
    assert refused.message == "the executors have no Python ./libraries/bin/python" and "PYSPARK_PYTHON" in refused.hint
    assert isinstance(read_failure("cache", text, "spark.log"), SparkLost)


def test_h423_a_probe_that_memory_ends_says_nothing() -> None:
    assert probe_failure('Cannot run program "python3": error=12, Cannot allocate memory') is None


@pytest.mark.parametrize("master", ["sparkk://h:1", "spark://h", "local[", ""])
def test_h361_a_master_that_spark_does_not_know(master: str) -> None:
    with pytest.raises(ConfigError, match="is none that Spark knows"):
        require_master(master)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]", "yarn", "k8s://https://h:443"])
def test_masters_that_are_asked_later(master: str) -> None:
    require_master(master)


def test_h361_a_master_that_does_not_answer() -> None:
    with pytest.raises(SparkLost, match=r"no master of Spark's answers at spark://127.0.0.1:1") as lost:
        require_master("spark://127.0.0.1:1")
    assert lost.value.exit == Exit.UNAVAILABLE and "[spark] master" in lost.value.hint


def test_h362_pages_on_a_cluster_want_the_drivers_address(tmp_path: Path) -> None:
    """Else executors would be told to find the driver at the address of the pages, loopback."""
    spec = SessionSpec(name="shop", master="yarn", driver_memory="1g", log_folder=tmp_path, ui=True)
    with pytest.raises(ConfigError, match="at which address executors reach the driver") as refused:
        start_session(spec)
    assert "spark.driver.host" in refused.value.hint
