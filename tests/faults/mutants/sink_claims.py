"""Rules of what a sink claims at its end, and of how often it looks, ``spark``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "end with what was heard, and not with what the log had", "spark/runner/application.py",
        "and not self._view.has_heard(self._newest)", "and False", "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "take a store before the ends of the log for one that owes nothing", "spark/stores/watermark.py",
        "        if not sound:\n            return True\n", "", "tests/unit/spark/test_watermark.py",
    ),
    Mutant(
        "count the wait for a claim from before its proof was heard", "spark/runner/application.py",
        "now_s - self._heard_s < CLAIM_S", "now_s - self._since_s < CLAIM_S", "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "wait for ever for progress that does not come", "spark/runner/application.py",
        "            return now_s - self._since_s < HEAR_S\n", "            return True\n",
        "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "give a store that is slow to claim three seconds (H560)", "spark/runner/application.py",
        "            return now_s - self._heard_s < HEAR_S\n", "            return now_s - self._heard_s < CLAIM_S\n",
        "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "take ends of the log from before the stores caught up for those of now (H560)", "spark/runner/application.py",
        "_claimed(store.shown) or self._view.seen_s < since_s", "_claimed(store.shown)",
        "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "wait long for what the log had later (H560)", "spark/runner/application.py",
        "        if not self._lacks(store):\n            return False\n", "", "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "end with a table named as held that has caught up (H561)", "spark/runner/application.py",
        "return behind or self._view.owes(", "return self._view.owes(", "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "end before the LSN that goes with the rows", "spark/stores/watermark.py",
        "        if not sound:\n            return True\n", "        return False\n",
        "tests/unit/spark/test_watermark.py",
    ),
    Mutant(
        "compare the LSN of a claim alone (H516)", "spark/stores/watermark.py",
        "return (proven.epoch, proven.lsn) > (shown.epoch, shown.lsn)",
        "return proven.lsn > shown.lsn", "tests/unit/spark/test_last_claims.py",
    ),
    Mutant(
        "look at the topics every ten seconds, however long it takes (H536)", "spark/queries/log_watch.py",
        "min(_LONGEST_TOPICS_S, max(_TOPICS_S, _TOPICS_REST * (now_s - began_s)))", "_TOPICS_S",
        "tests/unit/spark/test_log_watch.py",
    ),
    Mutant(
        "cut a full batch into two merges (H537)", "sinks/warehouse/warehouse_rows.py",
        "_PIECES = -(-_MERGE_ROWS // _SCAN_ROWS)", "_PIECES = _MERGE_ROWS // _SCAN_ROWS",
        "tests/unit/sinks/warehouse/test_warehouse_lots.py",
    ),
    Mutant(
        "go on with a switch however long ago the filling was (H541)", "cdc/operate/rebuild.py",
        "return run if in_use == run.generation else run.at(Step.BUILDING)", "return run",
        "tests/unit/cdc/operate/test_rebuild.py",
    ),
    Mutant(
        "end with a generation that the log cannot go on with (H542)", "cdc/operate/rebuild.py",
        "            if not self._resumed:\n                raise", "            raise",
        "tests/unit/cdc/operate/test_rebuild.py",
    ),
    Mutant(
        "refuse a rollback that is done (H543)", "cdc/operate/rebuild.py",
        "last.step not in (Step.DONE, Step.ROLLED_BACK)", "last.step != Step.DONE",
        "tests/unit/cdc/operate/test_rebuild.py",
    ),
    Mutant(
        "leave letters of a discarded generation waiting (H542)", "cdc/operate/rebuild.py",
        "self._ports.letters.write(given_up(run, self._ports.letters.read()))",
        "given_up(run, self._ports.letters.read())",
        "tests/unit/cdc/operate/test_rebuild.py",
    ),
    Mutant(
        "let a sink feed another index than readers see (H540)", "sinks/search/search_generations.py",
        "        self._notes.write(GENERATION, b\"%d\" % number)\n        crash_point(\"search_generation_noted\")\n"
        "        self._lead(aliases, number)",
        "        self._lead(aliases, number)\n        crash_point(\"search_generation_noted\")\n"
        "        self._notes.write(GENERATION, b\"%d\" % number)",
        "tests/integration/sinks/test_search_switched.py",
    ),
    Mutant(
        "join files of two partitions into one (H544)", "sinks/delta/delta_rewrite.py",
        "file.part != lot[0].part or ", "", "tests/integration/sinks/test_delta_exchange.py",
    ),
)  # fmt: skip
