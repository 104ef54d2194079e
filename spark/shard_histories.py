"""The progress records of each shard of capture, and what they prove together. Without shards there is one history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from cdc.progress import Offsets, Progress, ShardMark
from cdc.shard_progress import least
from spark.progress_history import ProgressHistory, ProgressProof

Shards = Mapping[str, str]
"""Topic -> the shard of capture that writes it. A topic that is not named is of the capture without shards."""


class ShardHistories:
    """Finds what a reader behind has passed, shard by shard."""

    def __init__(self) -> None:
        self._of: dict[str, ProgressHistory] = defaultdict(ProgressHistory)

    def add(self, records: Iterable[Progress]) -> None:
        """Take records, each shard's in the order of its topic."""
        for record in records:
            self._of[record.shard].add([record])

    def names(self, topic: str, shards: Shards) -> bool:
        """Whether the newest record of the topic's shard says anything of it."""
        shard = shards.get(topic, "")
        return shard in self._of and self._of[shard].names(topic)

    def each_covered(
        self, offsets: Offsets, topics: Collection[str], shards: Shards
    ) -> dict[str, ProgressProof | None]:
        """By shard of these topics, the newest record that a reader of them at ``offsets`` has passed. None where it
        has passed none of that shard."""
        own: dict[str, list[str]] = defaultdict(list)
        for topic in topics:
            own[shards.get(topic, "")].append(topic)
        if not own and not shards:
            own[""] = []  # a reader of nothing has passed every record
        return {
            # A topic that a shard's records do not name is another one's by now, or was (H402).
            shard: self._of[shard].newest_covered(offsets, some, named=bool(shards)) if shard in self._of else None
            for shard, some in own.items()
        }

    def newest_covered(self, offsets: Offsets, topics: Collection[str], shards: Shards) -> ProgressProof | None:
        """The proof that holds for all of these topics. None where one of their shards has proven nothing."""
        return together(self.each_covered(offsets, topics, shards))


def together(proofs: Mapping[str, ProgressProof | None]) -> ProgressProof | None:
    """The proof that the least of them gives for all. None where one is missing."""
    known = [proof for proof in proofs.values() if proof is not None]
    if len(known) < len(proofs) or not known:
        return None
    if len(known) == 1:
        return known[0]
    mark = least(map(mark_of, known))
    if mark is None:
        return None
    aside = {topic: why for proof in known for topic, why in proof.aside.items()}
    return ProgressProof(mark.epoch, mark.lsn, all(proof.reread for proof in known), aside, mark.lineage)


def mark_of(proof: ProgressProof) -> ShardMark:
    """The mark that a proof gives of its shard's tables."""
    return ShardMark(epoch=proof.epoch, lsn=proof.lsn, lineage=proof.lineage)
