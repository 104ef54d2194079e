"""What the looks beside the stream set aside (H120, H143)."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.process.clock import ManualClock
from cdc.record.tables_aside import CannotFollow, Cause, TableState, Unfollowed
from cdc.settings.model import parse
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.session.aside_causes import Remedies
from connectors.session.asides import SetAside
from tests.memory_log import MemoryCompactedTopic

SETTINGS = parse(
    {
        "name": "shop",
        "source": {"dsn": "host=none", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "none"},
        "sinks": {},
    }
)
IT = Unfollowed("it is not published")
UNASKED: Any = None
"""No table is set aside before the second look, so nothing is asked of the source."""


def remedies(*histories: str) -> tuple[Remedies, SetAside]:
    asides = SetAside(MemoryCompactedTopic(), {}, epoch=1, clock=ManualClock(), histories=histories.__contains__)
    return Remedies(SETTINGS, asides, SchemaRegistry(MemoryCompactedTopic()), lambda table: None), asides


def test_h120_what_is_not_followed_for_two_looks_is_set_aside() -> None:
    looks, asides = remedies()
    looks.look(UNASKED, {"my.schema.t": IT}, 800)
    assert not asides.documents, "a publication that is being changed is not one that was"
    looks.look(UNASKED, {}, 810)
    looks.look(UNASKED, {"my.schema.t": IT}, 820)
    assert not asides.documents
    looks.look(UNASKED, {"my.schema.t": IT, "public.u": IT}, 830)
    (found,) = asides.documents.values()
    assert (found.table, found.state, found.cause) == ("my.schema.t", TableState.ASIDE, Cause.NOT_FOLLOWED)
    assert found.since_lsn == 830
    assert found.detail == "it is not published; rename it back, or publish it again: cdc init"


def test_h143_a_history_that_is_not_followed_is_an_error() -> None:
    looks, asides = remedies("public.t")
    looks.look(UNASKED, {"public.t": IT}, 800)
    with pytest.raises(CannotFollow, match="it is not published"):
        looks.look(UNASKED, {"public.t": IT}, 830)
    assert not asides.documents
