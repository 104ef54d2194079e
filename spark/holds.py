"""Tables that a store holds: its place for them cannot take their newest shape, so they wait and all else flows.

A held table is none of the store's topics for the time: its records are left alone, its offsets in the watermark
stay where they were, and the watermark names it. When it is held no more it is read again from there, and named
until its rows have come as far as the LSN that the others have reached: an LSN never goes back.

Held for longer than the topics keep deletes, it may have missed some: then it stays held until it is made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc.progress import Hold, Watermark
from spark.place import span
from spark.ports import Topics
from spark.watermark import Claim, LogView

_MISSED = "and may have missed some"


def claim(
    view: LogView, before: Watermark | None, at: Claim, topics: Topics, holds: Mapping[str, Hold], now_ms: int = 0
) -> Watermark:
    """The watermark of a store that shows everything below ``at`` of its topics, but for those that it holds."""
    free = topics.without(holds)
    here = Claim({topic: parts for topic, parts in at.offsets.items() if topic in free.ids}, at.read_at_s)
    behind = _catching_up(view, before, here, free)
    shown = view.claim(before, here, free.without(behind), now_ms)
    offsets = {topic: parts for topic, parts in _offsets(before).items() if topic in holds}
    began = {topic: replace(hold, since_ms=_since_ms(before, topic, now_ms)) for topic, hold in holds.items()}
    now = {topic: _judged(hold, topics.retention_s, now_ms) for topic, hold in began.items()}
    return replace(shown, offsets={**offsets, **here.offsets}, topic_ids=dict(topics.ids), held={**behind, **now})


def overdue(before: Watermark | None, topics: Topics, now_ms: int) -> dict[str, Hold]:
    """Tables that have waited for longer than their topics keep deletes: whatever is carried now, they stay held."""
    held = before.held if before is not None else {}
    judged = {topic: _judged(hold, topics.retention_s, now_ms) for topic, hold in held.items() if topic in topics.ids}
    return {topic: hold for topic, hold in judged.items() if hold != held[topic] or hold.reason.endswith(_MISSED)}


def _judged(hold: Hold, retention_s: float, now_ms: int) -> Hold:
    waited_s = (now_ms - hold.since_ms) / 1000
    if not hold.since_ms or waited_s <= retention_s:
        return hold
    kept = f"longer than the {span(retention_s)} for which its topic keeps deletes"
    return replace(hold, reason=f"{hold.table}: it has waited for {kept}, {_MISSED}")


def _since_ms(before: Watermark | None, topic: str, now_ms: int) -> int:
    if before is None:
        return now_ms
    known = before.held.get(topic)
    return (known.since_ms if known is not None else before.level_ms) or now_ms


def _catching_up(view: LogView, before: Watermark | None, here: Claim, free: Topics) -> dict[str, Hold]:
    """Tables that were held and do not show all below the store's LSN yet."""
    if before is None:
        return {}
    released = {topic: replace(hold, reason="") for topic, hold in before.held.items() if topic in free.ids}
    if not released:
        return {}
    whole = view.claim(Watermark(epoch=before.epoch, lsn=0), here, free)
    return {} if (whole.epoch, whole.lsn) >= (before.epoch, before.lsn) else released


def _offsets(mark: Watermark | None) -> Mapping[str, Mapping[int, int]]:
    return mark.offsets if mark is not None else {}
