"""What the state topic has to say before capture may stream."""

from __future__ import annotations

import pytest

from cdc.process.errors import DamagedError
from cdc.record.state import SlotState, SnapshotState, TopicsState
from connectors.session.known_tables import KnownState, known_of

OWN = {"id": "x", "partitions": 1}
SLOT = SlotState(
    epoch=1,
    system_identifier="7",
    timeline=1,
    database="app",
    database_oid=5,
    slot="cdc_shop",
    publication="cdc_shop",
    consistent_point=8,
)
SNAPSHOT = SnapshotState(epoch=1, state="complete", consistent_point=8, last_cut_lsn=9)


def held(topics: dict[str, dict[str, object]]) -> dict[bytes, bytes]:
    noted = TopicsState(cluster_id="c", topics=topics, tables={"public.a": "shop.public.a"})
    return {one.key(): one.to_json() for one in (noted, SLOT, SNAPSHOT)}


def test_h159_topics_that_are_not_noted_are_named() -> None:
    whole = {"shop.public.a": OWN, "shop.progress": OWN}
    assert isinstance(known_of(held(whole), name="shop"), KnownState)
    for missing in whole:
        left = {topic: facts for topic, facts in whole.items() if topic != missing}
        with pytest.raises(DamagedError, match=f"says nothing of {missing}"):
            known_of(held(left), name="shop")
