"""Stops, time limits, checkpoints, Kafka options, Spark's failures, settings and the zip."""

from __future__ import annotations

import os
import signal
import threading
import zipfile
from pathlib import Path

import pytest

from cdc.process.errors import ConfigError, LogError, Retry, SinkError, TopicError
from sinks.contract.kinds import spec_for
from spark.queries.query import batch_after
from spark.queries.query_run import LocalFolder, batch_offsets, parse_offsets
from spark.session.failures import Halted, QueryFailed, persist, read_failure
from spark.session.package_zip import build_zip, openers_of
from spark.session.spark_session import SessionSpec, configuration, require_name, start_session
from spark.session.stop import SinkStop


def test_a_signal_asks_to_stop_and_leaves_the_handler_as_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = SinkStop()
    with stop.on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5)
        assert stop.reason == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            stop.event.wait(0.01)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_file_asks_to_stop_once(tmp_path: Path) -> None:
    stop = SinkStop(tmp_path / "spark.stop")
    assert not stop.asked
    (tmp_path / "spark.stop").touch()
    assert stop.wait(0)
    assert not (tmp_path / "spark.stop").exists()


class Faulty:
    """Fails with the given errors, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def test_a_store_that_is_away_is_asked_again() -> None:
    heard: list[str] = []
    action = Faulty(SinkError("away"), LogError("away too"))
    assert persist(action, halt=threading.Event(), away=lambda error: heard.append(error.message)) == "done"
    assert heard == ["away", "away too"]


def test_what_time_cannot_mend_is_raised_at_once() -> None:
    action = Faulty(SinkError("wrong password", retry=Retry.NEVER))
    with pytest.raises(SinkError, match="wrong password"):
        persist(action, halt=threading.Event())
    assert action.calls == 1


def test_a_stop_ends_the_waiting_but_never_a_success() -> None:
    halt = threading.Event()
    halt.set()
    assert persist(Faulty(), halt=halt) == "done"
    with pytest.raises(Halted):
        persist(Faulty(SinkError("away"), SinkError("away")), halt=halt)


def test_repeated_calls_have_an_end() -> None:
    with pytest.raises(SinkError):
        persist(Faulty(*[SinkError("away")] * 50), halt=threading.Event(), timeout_s=0.3)


def test_each_run_of_a_query_has_a_place_of_its_own(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "checkpoints")
    first = folder.fresh("cache")
    second = folder.fresh("cache")
    assert first != second
    assert not Path(first).exists(), "an earlier run's memory is of no use to a later one"
    assert folder.fresh("search") != second


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        LocalFolder(tmp_path / "file").fresh("cache")


def test_offsets_are_read_as_spark_wrote_them(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    place = Path(folder.fresh("cache"))
    (place / "offsets").mkdir()
    (place / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n{"a.b.c":{"0":7,"1":12}}', encoding="utf-8")
    assert batch_offsets(folder, str(place), 3) == {"a.b.c": {0: 7, 1: 12}}
    with pytest.raises(SinkError, match="has lost"):
        batch_offsets(folder, str(place), 4)
    with pytest.raises(ValueError, match="not an offset log"):
        parse_offsets("x\n{}\n{}")


@pytest.mark.parametrize(
    ("text", "kind", "retry"),
    [
        ("x.y.KafkaException: boom\nCaused by: java.lang.IllegalStateException: "
         "Partition t-0's offset was changed from 5 to 2, some data may have been missed.", TopicError, Retry.NEVER),
        ("java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.TimeoutException: "
         "Timed out waiting for a node assignment.", LogError, Retry.LATER),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: no", LogError, Retry.NEVER),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this "
         "topic-partition.", LogError, Retry.LATER),
        ("java.lang.NullPointerException: what", QueryFailed, Retry.NOW),
        ("", QueryFailed, Retry.NOW),
    ],
)  # fmt: skip
def test_h63_spark_s_words_become_an_error_of_ours(text: str, kind: type[Exception], retry: Retry) -> None:
    failure = read_failure("cache", text, "spark.log")
    assert type(failure) is kind
    assert failure.retry is retry
    assert "\n" not in failure.message


@pytest.mark.parametrize("folder", ["/proc/ck", "/etc/hosts/ck"])
def test_a_checkpoint_folder_that_cannot_be_written(folder: str) -> None:
    spec = SessionSpec(name="shop", master="local[2]", driver_memory="1g", log_folder=Path(folder))
    with pytest.raises(ConfigError, match=f"the checkpoint folder {folder} cannot be written: ") as refused:
        start_session(spec)
    assert "[spark] checkpoint" in refused.value.hint


def test_no_secret_is_in_a_setting_and_the_users_own_wins(tmp_path: Path) -> None:
    spec = SessionSpec(
        name="shop", master="local[2]", driver_memory="1g", log_folder=tmp_path, conf={"spark.ui.enabled": "true"}
    )
    conf = configuration(spec, tmp_path / "log4j2.properties")
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.driver.maxResultSize"] == "0"
    assert "jaas" in conf["spark.redaction.regex"]
    assert not [name for name in conf if name.startswith("spark.kafka.") and "password" in name]


def test_the_zip_has_a_tasks_imports_and_is_always_the_same(tmp_path: Path) -> None:
    first = build_zip(tmp_path / "a").read_bytes()
    assert first == build_zip(tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a" / "headrace.zip") as archive:
        names = set(archive.namelist())
    assert {
        "spark/queries/tasks.py",
        "sinks/contract/sink_spec.py",
        "cdc/record/progress.py",
        "sinks/cache/rows.lua",
        "connectors/kafka/record_reader.py",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("snapshot", "tests"))]


def test_the_zip_holds_the_package_that_brings_a_store(tmp_path: Path, other_store: Path) -> None:
    ours = spec_for("redis", prefix="shop", options={"url": "redis://h"})
    brought = spec_for("folder", prefix="shop", options={"path": "/files"})
    assert openers_of([ours]) == ()
    build_zip(tmp_path, openers_of([ours, brought]))
    with zipfile.ZipFile(tmp_path / "headrace.zip") as archive:
        names = set(archive.namelist())
    assert {"folderstore/__init__.py", "folderstore/folder_store.py", "sinks/contract/sink_spec.py"} <= names


def test_the_zip_holds_a_lone_module_that_brings_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lone_store.py").write_text("OPENED = True\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    build_zip(tmp_path / "made", ["lone_store"])
    with zipfile.ZipFile(tmp_path / "made" / "headrace.zip") as archive:
        assert archive.read("lone_store.py") == b"OPENED = True\n"


def test_batches_get_smaller_after_an_unknown_failure_alone() -> None:
    assert batch_after(QueryFailed("java.lang.OutOfMemoryError"), 500_000) == 125_000
    assert batch_after(QueryFailed("again"), 1_500) == 1_000
    assert batch_after(QueryFailed("again"), 10) == 10, "never more than the user allows"
    assert batch_after(LogError("away"), 500_000) == 500_000


def test_a_user_without_a_name_is_told_before_spark_starts() -> None:
    """As in an image that runs as any number. Spark's own words were about a name that is null."""
    require_name(os.getuid())
    with pytest.raises(ConfigError, match="Spark does not start as user 4711, who has no name on this machine"):
        require_name(4711, {0: "root"}.__getitem__)
