"""Two looks at a slot: what they show of a connector that says RUNNING."""

from __future__ import annotations

import pytest

from connectors.connect.streaming import SlotSample, Streaming, judge


def look(pid: int | None = 7, age_s: float | None = 60.0, sent_lsn: int | None = 100, writes: int = 5) -> SlotSample:
    return SlotSample(pid=pid, age_s=age_s, sent_lsn=sent_lsn, writes=writes, wal_lsn=150)


@pytest.mark.parametrize(
    ("first", "last", "between_s", "found"),
    [
        (look(), look(age_s=61.0), 1.0, Streaming.IDLE),
        (look(), look(sent_lsn=200, writes=9), 1.0, Streaming.READS),
        (look(), look(writes=9), 1.0, Streaming.STUCK),
        # It had read all that there was: the writes are older, and the server counted them late.
        (look(sent_lsn=150), look(sent_lsn=150, writes=9), 1.0, Streaming.READS),
        (look(), look(pid=None, age_s=None), 16.0, Streaming.RESTARTS),
        (look(age_s=8.0), look(age_s=9.0), 1.0, Streaming.RESTARTS),
        (look(age_s=2.0), look(pid=8, age_s=6.0), 16.0, Streaming.RESTARTS),
        # Our role may not see others' sessions: only what was watched counts, and how far it is stays unknown.
        (look(age_s=None, sent_lsn=None), look(age_s=None, sent_lsn=None), 14.9, Streaming.RESTARTS),
        (look(age_s=None, sent_lsn=None), look(age_s=None, sent_lsn=None, writes=9), 15.0, Streaming.READS),
        (look(age_s=None), look(pid=8, age_s=None), 16.0, Streaming.RESTARTS),
    ],
)
def test_h116_a_connector_that_begins_anew_does_not_read(
    first: SlotSample, last: SlotSample, between_s: float, found: Streaming
) -> None:
    assert judge(first, last, between_s) is found
    assert found.good is (found in (Streaming.IDLE, Streaming.READS))
