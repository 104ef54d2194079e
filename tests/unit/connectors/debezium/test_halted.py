"""A connector that somebody stopped is not waited for: the hint names what lets it go on."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import Exit
from cdc.settings.model import parse
from connectors.debezium.client import ConnectError
from connectors.debezium.connector import Connector
from connectors.debezium.status import parse_status
from tests.unit.connectors.debezium.rest_server import Script, rest_server


def status(state: str) -> dict[str, Any]:
    return {"name": "shop", "connector": {"state": state, "worker_id": "w"}, "tasks": []}


@pytest.mark.parametrize("state", ["STOPPED", "PAUSED"])
def test_one_that_is_held_is_told_before_the_time_is_up(state: str) -> None:
    clock = ManualClock()
    with rest_server(Script([(200, status(state))])) as url:
        document = {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": ["public.a"]},
            "log": {"bootstrap_servers": "127.0.0.1:1"},
            "debezium": {"url": url, "database_password": "${env:PASSWORD}", "deploy_timeout": "60s"},
        }
        began = clock.monotonic()
        with pytest.raises(ConnectError, match=f"shop is {state.lower()}, and does not go on by itself") as held:
            Connector(parse(document), clock=clock).restart(failed_only=False)
    assert held.value.hint == "cdc connect resume"
    assert held.value.exit is Exit.UNAVAILABLE
    assert clock.monotonic() - began < 15


def test_h262_one_that_cannot_even_start_counts_as_stopped() -> None:
    """Kafka Connect has nothing that it could stop, and goes on saying FAILED."""
    clock = ManualClock()
    with rest_server(Script([(200, {}), (200, status("FAILED"))])) as url:
        document = {
            "name": "shop",
            "source": {"kind": "debezium", "dsn": "host=h user=cdc dbname=app", "tables": ["public.a"]},
            "log": {"bootstrap_servers": "127.0.0.1:1"},
            "debezium": {"url": url, "database_password": "${env:PASSWORD}", "deploy_timeout": "60s"},
        }
        began = clock.monotonic()
        Connector(parse(document), clock=clock).stop()
    assert 5 < clock.monotonic() - began < 15


def test_running_and_failed_ones_are_not_held() -> None:
    assert [parse_status(status(state)).halted for state in ("RUNNING", "FAILED", "UNASSIGNED")] == [False] * 3
