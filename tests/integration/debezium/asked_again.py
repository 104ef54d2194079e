"""Rows of a table that joined: read, or said to be unread and asked for once more."""

from __future__ import annotations

from collections.abc import Callable

from cdc.process.clock import SystemClock
from connectors.debezium.connector import Connector
from tests.integration.debezium.conftest import Pipeline
from tests.waiting import wait_until


class LaterClock(SystemClock):
    """Some minutes ahead, so that a request counts as old."""

    def now_ns(self) -> int:
        return super().now_ns() + 300 * 10**9


def read_or_told(pipeline: Pipeline, table: str, all_there: Callable[[], bool]) -> None:
    """Wait until all rows are there. A task of before that ends late, on a machine that is busy, may take the signal:
    the table is named then, and the next deploy asks again (H260)."""
    try:
        wait_until(all_there, 60, f"{table} was read")
    except AssertionError:
        connector = Connector(pipeline.settings(), clock=LaterClock())
        assert any(f"public.{table} were" in message for message, _ in connector.unread())
        assert f"public.{table}" in connector.deploy().added
        wait_until(all_there, 60, f"{table} was read")
