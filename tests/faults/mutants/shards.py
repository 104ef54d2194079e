"""Rules of several shards of capture: order, claims, takeovers and what goes by the shard of a table."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_SPARK = "tests/unit/spark"
_REBUILD = "tests/unit/cdc/rebuild"
_TAKEOVER = "tests/unit/cdc/test_shard_takeover.py"

MUTANTS = (
    Mutant(
        "let a store claim the greatest of its shards",
        "cdc/shard_progress.py",
        "lsn=min(mark.lsn for mark in known)",
        "lsn=max(mark.lsn for mark in known)",
        f"{_SPARK}/test_sharded_world.py",
    ),
    Mutant(
        "claim without a shard of which nothing is known",
        "spark/shard_histories.py",
        "if len(known) < len(proofs) or not known:",
        "if not known:",
        f"{_SPARK}/test_sharded_world.py",
    ),
    Mutant(
        "believe a shard's record about a topic that it does not name",
        "spark/shard_histories.py",
        "named=bool(shards)",
        "named=False",
        f"{_SPARK}/test_shard_histories.py",
    ),
    Mutant(
        "keep a mark for tables that it did not speak of",
        "cdc/shard_progress.py",
        "known is not None and set(own) <= set(known.topics)",
        "known is not None",
        "tests/unit/cdc/test_shard_progress.py",
    ),
    Mutant(
        "compare LSNs of shards on two servers",
        "cdc/shard_progress.py",
        "if not known or len(systems) > 1:",
        "if not known:",
        "tests/unit/cdc/test_shard_progress.py",
    ),
    Mutant(
        "begin a shard's first epoch below what it has noted",
        "cdc/shard_takeover.py",
        "epochs_above(EpochsState.find(own), above, identity)",
        "epochs_above(None, above, identity)",
        _TAKEOVER,
    ),
    Mutant(
        "give a table up before it is taken",
        "cdc/shard_takeover.py",
        "        _take(ports, shard, moved, states)\n",
        "",
        _TAKEOVER,
    ),
    Mutant(
        "take a table over while its former shard may write",
        "cdc/shard_takeover.py",
        "sorted({shard, *(table.writer for table in moved)})",
        "[shard]",
        _TAKEOVER,
    ),
    Mutant(
        "leave requests of a table to the shard that gave it up",
        "cdc/shard_takeover.py",
        "for key in documents_of(documents, tables)",
        "for key in ()",
        _TAKEOVER,
    ),
    Mutant(
        "pass over a shard that the settings lack",
        "cdc/shard_documents.py",
        "if shard not in named and _is_made(by_shard.get(shard, {}))",
        "if False",
        _TAKEOVER,
    ),
    Mutant(
        "give a table in two shards to the older epoch",
        "cdc/shard_documents.py",
        "older_first = sorted(by_shard, key=lambda shard: ",
        "older_first = sorted(by_shard, key=lambda shard: -",
        _TAKEOVER,
    ),
    Mutant(
        "show of each table what all shards show",
        "cdc/progress.py",
        "return tuple(self.by_shard().values())",
        "return (self,)",
        "tests/unit/cdc/freshness/test_wanted.py",
    ),
    Mutant(
        "wait for a store in the least epoch of all shards",
        "cdc/freshness/rules.py",
        "for shard, part in mark.by_shard().items()",
        'for shard, part in {"": mark}.items()',
        "tests/unit/cdc/freshness/test_shard_waits.py",
    ),
    Mutant(
        "mend a row in the least epoch of all shards",
        "cdc/verification/repair.py",
        "Position(tables[name].epoch or epoch, ",
        "Position(epoch, ",
        "tests/unit/cdc/verification/test_run.py",
    ),
    Mutant(
        "wait for a verified store in the least epoch",
        "cdc/verification/known_pipeline.py",
        "self.shard_epochs.get(shard, self.epoch)",
        "self.epoch",
        "tests/unit/cdc/verification/test_run.py",
    ),
    Mutant(
        "keep a key that changed in a former epoch of its shard",
        "cdc/shard_documents.py",
        "for topic in one.rekeyed() if own",
        "for topic in one.keys if own",
        "tests/unit/cdc/test_shard_documents.py",
    ),
    Mutant(
        "call a new generation level by its least shard",
        "cdc/rebuild/rules.py",
        "if old is None or not old.shards:",
        "if True:",
        _REBUILD,
    ),
    Mutant(
        "delete what all shards share with the first one",
        "cdc/drop/run.py",
        "if left else set()",
        "if False else set()",
        "tests/unit/cdc/drop/test_run.py",
    ),
    Mutant(
        "give a shard's figures the sink's port",
        "cdc/shard_plan.py",
        "if str(one) not in taken",
        "if True",
        "tests/unit/cdc/test_shard_plan.py",
    ),
    Mutant(
        "let two shards take one table",
        "cdc/shard_plan.py",
        "(*settings.source.exclude, *before)",
        "settings.source.exclude",
        "tests/unit/cdc/test_shard_plan.py",
    ),
    Mutant(
        "judge a topic by a shard that does not name it",
        "spark/foreign_records.py",
        "return max(named, key=_reached) if named else None",
        "return max((self.progress, *self.others), key=_reached)",
        f"{_SPARK}/test_foreign_records.py",
    ),
    Mutant(
        "tell what is set aside once all shards prove something",
        "spark/watermark.py",
        "        if shards:\n",
        "        if False:\n",
        f"{_SPARK}/test_shard_histories.py",
    ),
    Mutant(
        "take a shard's epoch for the one of its number",
        "spark/place.py",
        "check_epoch(sink, part, ",
        "check_epoch(sink, None, ",
        f"{_SPARK}/test_its_place.py",
    ),
    Mutant(
        "hold a store against no shard's reach",
        "spark/place.py",
        "check_claim(sink, part, ",
        "check_claim(sink, None, ",
        f"{_SPARK}/test_its_place.py",
    ),
    Mutant(
        "name no shard's epoch",
        "spark/place.py",
        'replace(mark, epoch_id=self._of_shards.get((s, mark.epoch), ""))',
        "mark",
        f"{_SPARK}/test_its_place.py",
    ),
    Mutant(
        "go back by the epoch of the shard that has the topic now",
        "spark/sweeps.py",
        "epochs.behind(reached.get(topic, shown.epoch))",
        "epochs.behind(max((mark.epoch for mark in shown.shards.values()), default=1))",
        f"{_SPARK}/test_begun_behind.py",
    ),
)
