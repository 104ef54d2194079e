"""A table's place that is made anew, or emptied, by a process that is killed: nothing is claimed of what it lost."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from cdc.crash import CRASH_EXIT
from tests.contract import damage
from tests.contract.orders import order, statuses
from tests.contract.stores import Store, claims_nothing
from tests.contract.test_faults import BOTH, fed, without_places
from tests.contract.topics import ORDERS, batch

KILLED = """
import pickle, sys
from sinks.registry import open_sink
sys.path[:], spec, shape = pickle.load(sys.stdin.buffer)
open_sink(spec).sink.prepare(shape)
"""


def killed_at(point: str, store: Store) -> None:
    """A process that makes the place of the orders ready ends in the middle of it."""
    if store.spec is None:
        pytest.skip("no process is killed beside a store in memory")
    given = pickle.dumps((sys.path, store.spec, ORDERS))
    environment = {**os.environ, "CDC_CRASH_AT": point}
    died = subprocess.run([sys.executable, "-c", KILLED], input=given, env=environment, check=False)
    assert died.returncode == CRASH_EXIT


@pytest.mark.slow
def test_h470_a_place_made_by_a_killed_process_is_filled(store: Store) -> None:
    """Behind the kill the place is there, and empty."""
    without_places(store)
    sink, topic, _ = fed(store)
    sink.close()
    damage.drop(store)
    killed_at("table_prepared", store)
    again = store.open()
    again.sink.prepare(ORDERS)
    assert claims_nothing(again.watermarks.read()), "what it has lost comes from the beginning of the log"
    again.sink.apply(batch(topic.events), BOTH)
    assert statuses(again) == {"1": order(1)["status"]}
