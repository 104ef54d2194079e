"""One Spark session for all tests here, and applications that run on it in a thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql import SparkSession

from cdc.settings.model import Settings
from cdc.wiring.sinks import build_sinks
from sinks.contract.port import OpenSink
from sinks.contract.stores import open_store
from spark.runner.application import SinkApplication, run
from spark.session.stop import SinkStop
from tests.integration.spark.handmade import HandMadeLog
from tests.settings_file import SELDOM
from tests.waiting import wait_until

T = TypeVar("T")
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets of its results, and py4j those of its threads, to the collector."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def pipeline(kafka: str, topic_prefix: str) -> HandMadeLog:
    """The topics of one table, ``public.orders``, of two partitions, empty."""
    made = HandMadeLog(topic_prefix, kafka, conf=SELDOM)
    made.init()
    return made


class Sinks:
    """Runs applications on the session of the tests."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._folder = folder

    def application(self, settings: Settings, **changes: Any) -> SinkApplication:
        """As ``cdc sink`` builds it, with checkpoints in the test's folder."""
        spark = settings.spark.model_copy(update={"checkpoint": str(self._folder / "checkpoints")})
        return replace(build_sinks(settings.model_copy(update={"spark": spark})), **changes)

    def catch_up(self, settings: Settings, **changes: Any) -> None:
        """Feed the stores until they show all that the topics hold now."""
        run(self.application(settings, **changes), SinkStop(), until_caught_up=True, session=self._session)

    @contextmanager
    def running(self, settings: Settings, **changes: Any) -> Iterator[RunningSinks]:
        """Feed the stores while the body runs."""
        running = RunningSinks(self.application(settings, **changes), self._session)
        with ExitStack() as at_end:
            at_end.callback(running.stop)
            yield running


class RunningSinks:
    """An application in a thread of its own."""

    def __init__(self, application: SinkApplication, session: SparkSession) -> None:
        self._wish = SinkStop()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(application, session), daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def wait_for_end(self, timeout_s: float) -> None:
        """Wait until it ends by itself."""
        self._thread.join(timeout_s)
        assert self.ended, "the application goes on"

    def until(self, state: Callable[[], T], deadline_s: float = 60.0) -> T:
        """Wait for a state; an application that has ended meanwhile is an error."""

        def reached() -> T:
            if self.failure is not None:
                raise self.failure
            return state()

        return wait_until(reached, deadline_s)

    def stop(self) -> None:
        """Ask it to stop and wait for the end."""
        self._wish.ask("the test is over")
        self._thread.join(120)
        assert self.ended, "the application does not stop"

    def _run(self, application: SinkApplication, session: SparkSession) -> None:
        try:
            run(application, self._wish, session=session)
        except BaseException as failure:
            self.failure = failure


@pytest.fixture
def sinks(spark_session: SparkSession, tmp_path: Path) -> Iterator[Sinks]:
    """Applications of this test."""
    yield Sinks(spark_session, tmp_path)
    gc.collect()


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Callable[[Settings, str], OpenSink]:
    """Opens a store of these settings to look into it; closed afterwards."""

    def open_one(settings: Settings, name: str) -> OpenSink:
        store = open_store(name, settings)
        request.addfinalizer(store.close)
        return store

    return open_one


@pytest.fixture
def all_stores(redis_url: str, opensearch: str, index_prefix: str, warehouse: Path, tmp_path: Path) -> dict[str, Any]:
    """A store of each kind, empty."""
    return {
        "cache": {"kind": "redis", "url": redis_url},
        "search": {"kind": "opensearch", "url": opensearch, "prefix": index_prefix},
        "warehouse": {"kind": "delta", "path": str(warehouse)},
        "reports": {"kind": "sql", "url": f"sqlite:///{tmp_path}/reports.db"},
    }
