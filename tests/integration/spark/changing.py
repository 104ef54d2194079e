"""A pipeline from a real Postgres to five stores, which runs while its tables change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from cdc.freshness.rules import wait_until_shown
from cdc.process.clock import SYSTEM_CLOCK
from cdc.record.topic_names import TableName
from cdc.status.rules import status_of
from cdc.status.view_lines import SinkStatus
from cdc.verification.passes import verify
from cdc.verification.ports import Cut
from cdc.verification.result import StoreVerdict
from cdc.wiring.pipeline import open_status
from cdc.wiring.sinks import read_known
from connectors.operate.verify import open_cut, verified_tables
from sinks.contract.port import OpenSink
from sinks.contract.stores import open_store
from tests.contract.conftest import postgres_url
from tests.integration.capture.pipeline import Pipeline
from tests.integration.spark.conftest import RunningSinks
from tests.waiting import wait_until

STORES = ("cache", "search", "delta", "postgres", "sqlite")


def sinks_of(dsn: str, redis: str, search: str, prefix: str, folder: Path) -> dict[str, dict[str, Any]]:
    """One sink of each kind; the SQL one on Postgres keeps to a schema of its own beside the source."""
    return {
        "cache": {"kind": "redis", "url": redis},
        "search": {"kind": "opensearch", "url": search, "prefix": prefix},
        "delta": {"kind": "delta", "path": str(folder / "warehouse")},
        "postgres": {"kind": "sql", "url": postgres_url(conninfo_to_dict(dsn)), "db_schema": "warehouse"},
        "sqlite": {"kind": "sql", "url": f"sqlite:///{folder}/warehouse.db"},
    }


@dataclass
class Changing:
    """``stores``: all five, opened a second time to look into them."""

    pipeline: Pipeline
    running: RunningSinks
    stores: Mapping[str, OpenSink]

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own; an application that has ended is an error."""
        if self.running.failure is not None:
            raise self.running.failure
        self.pipeline.execute(*statements)

    def await_equal(self, table: str, stores: tuple[str, ...] = STORES, deadline_s: float = 60.0) -> None:
        """Wait until these stores equal the source, row by row, at a fence."""
        found: list[StoreVerdict] = []

        def equal() -> bool:
            if self.running.failure is not None:
                raise self.running.failure
            found[:] = self.compare(table, stores)
            return not any(verdict.differences for verdict in found)

        wait_until(equal, deadline_s, lambda: [verdict.document() for verdict in found])

    def compare(self, table: str, stores: tuple[str, ...]) -> list[StoreVerdict]:
        """One comparison of a table."""
        settings = self.pipeline.settings
        with closing(open_cut(settings)) as source:
            known = read_known(settings)
            one = verified_tables(settings, known.topics, source)[TableName("public", table)]

            def reached(cut: Cut) -> None:
                for name in stores:
                    wait_until_shown(
                        name,
                        self.stores[name].watermarks,
                        cut.fence,
                        epoch=known.epoch,
                        timeout_s=60,
                        clock=SYSTEM_CLOCK,
                    )

            readers = {name: self.stores[name].reader for name in stores}
            report = verify(
                source, readers, {name: [one] for name in stores}, epoch=known.epoch, reached=reached,
                clock=SYSTEM_CLOCK, watch=_Nobody(),
            )  # fmt: skip
        return report.verdicts

    def await_held(self, table: str, column: str, stores: tuple[str, ...]) -> None:
        """Wait until ``cdc status`` says of each of these stores that it holds the table, for this column."""
        for store in stores:
            wait_until(partial(self._holds, store, table, column), 30, partial(self.status, store))

    def _holds(self, store: str, table: str, column: str) -> bool:
        shown = self.status(store)
        why = shown.held.get(f"public.{table}", "")
        return shown.state == "holding" and f"public.{table}: column {column} is" in why

    def status(self, store: str) -> SinkStatus:
        """A store's line of ``cdc status``."""
        settings = self.pipeline.settings
        with open_status(settings) as reader:
            shown = status_of(reader.read(), settings.limits)
        return next(sink for sink in shown.sinks if sink.name == store)


class _Nobody:
    def reading(self, side: str, table: TableName, rows: int) -> None: ...
    def looking(self, look: int, keys: int) -> None: ...


@contextmanager
def opened(pipeline: Pipeline) -> Iterator[dict[str, OpenSink]]:
    """All stores of a pipeline."""
    with ExitStack() as at_end:
        stores = {name: open_store(name, pipeline.settings) for name in STORES}
        for store in stores.values():
            at_end.callback(store.close)
        yield stores
