"""The note of WAL at a later cut of a first snapshot, and the warning where there is none (H203, H249)."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from connectors.postgres.connections import connect
from connectors.snapshots import SnapshotSource
from tests.golden.direct import settings_of
from tests.unit.cdc.checks.test_postgres import KNOWN
from tests.unit.connectors.postgres.wal_server import WalServer, refusal

WAL = bytes(range(1, 251)) * 8


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ({}, None),
        ({"begins": refusal("42501")}, "the server does not give its WAL"),
        ({"closes": b"START_REPLICATION"}, "Postgres broke off while its WAL was read"),
    ],
    ids=["given", "refused", "broken"],
)
def test_h249_a_cut_that_cannot_be_noted_is_told(
    faults: dict[str, Any], why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with WalServer(WAL, **faults) as server, closing(connect(server.source)) as session:
        source = SnapshotSource(settings_of("s", server.source.dsn, "readable"))
        found = source.witness(session, KNOWN)
    assert (found is None) is (why is not None)
    told = [record.__dict__["why"] for record in caplog.records if record.getMessage() == "cut_not_noted"]
    assert [one.partition(":")[0] for one in told] == ([] if why is None else [why])
