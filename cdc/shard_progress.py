"""The watermark rule over several shards of capture: what may be claimed of tables that two of them write. Pure.

Each shard has progress of its own. Of one table a store may claim what the progress of that table's shard proves. Of
itself it may claim the least of all, epoch and LSN each by itself: a shard that began a new epoch may be at a lower LSN
than one that did not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdc.progress import ShardMark, Watermark
from cdc.source_lineage import SourceLineage


def least(marks: Iterable[ShardMark]) -> ShardMark | None:
    """The mark that holds for all of them. None where there is none, or their LSNs are of different systems.

    >>> least([ShardMark(epoch=2, lsn=50), ShardMark(epoch=1, lsn=90)])
    ShardMark(epoch=1, lsn=50, lineage=None, topics=(), epoch_id='')
    """
    known = list(marks)
    systems = {mark.lineage.system for mark in known if mark.lineage is not None}
    if not known or len(systems) > 1:
        return None
    lineage = _common([mark.lineage for mark in known])
    return ShardMark(epoch=min(mark.epoch for mark in known), lsn=min(mark.lsn for mark in known), lineage=lineage)


def newest(first: ShardMark | None, second: ShardMark | None) -> ShardMark | None:
    """The mark that says more of the two, of one shard. The second of equals."""
    if first is None or second is None:
        return first or second
    return first if (first.epoch, first.lsn) > (second.epoch, second.lsn) else second


def grown(
    before: Mapping[str, ShardMark], proven: Mapping[str, ShardMark | None], topics: Mapping[str, tuple[str, ...]]
) -> dict[str, ShardMark]:
    """The vector of a store that showed ``before``, once more is ``proven``. No mark of the same tables goes back.

    ``topics``: by shard, those of its tables that the store has now. A mark from before holds where it speaks of all of
    them (H402). ``proven``: None where nothing is proven of a shard now. One of which nothing is known stays out.
    """
    found = {}
    for shard, own in topics.items():
        known = before.get(shard)
        held = known if known is not None and set(own) <= set(known.topics) else None
        mark = newest(held, proven.get(shard))
        if mark is not None:
            found[shard] = replace(mark, topics=own)
    return found


def as_shard(watermark: Watermark, shard: str) -> Watermark | None:
    """The same store, as what it shows of one shard's tables. None where it shows nothing of them yet."""
    mark = watermark.shards.get(shard)
    # Of the one alone: the parts of all take a hundred times as long where there are a hundred.
    return replace(watermark, shards={shard: mark}).by_shard()[shard] if mark is not None else None


def shard_of_topic(watermark: Watermark, topic: str) -> str:
    """The shard whose mark speaks of a topic. Empty where none does."""
    return next((shard for shard, mark in watermark.shards.items() if topic in mark.topics), "")


def _common(lineages: list[SourceLineage | None]) -> SourceLineage | None:
    """The lineage of all. None where two differ: while one shard goes on with a promoted server and another has not
    yet, no LSN above the promotion is a place of both."""
    first = lineages[0]
    return first if all(lineage == first for lineage in lineages) else None
