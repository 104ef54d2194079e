"""Rules of ``snapshot``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_DIFFERENCES = "tests/unit/snapshot/later/test_row_differences.py"

MUTANTS = (
    Mutant(
        "count a reading that began anew from its second beginning", "snapshot/later/chunk_queue.py",
        "min(begun or floor, floor).encode()", "floor.encode()", _DIFFERENCES,
    ),
    Mutant(
        "count the rows of the reading before as one's own", "snapshot/later/chunk_queue.py",
        "int(digits) >= self._started_ns", "True", _DIFFERENCES,
    ),
    Mutant(
        "forget how the first snapshot found the publication", "snapshot/later/watch_rules.py",
        "        entries=plan.entries,\n", "", "tests/unit/snapshot/later/test_watch_rules.py",
    ),
    Mutant(
        "take a column of another type for the planned one", "snapshot/source/read_transaction.py",
        "there is None or there.type_oid != column.source_type_oid", "there is None",
        "tests/integration/snapshot/test_chunk.py -k h71",
    ),
    Mutant(
        "read a chunk whose file moved", "snapshot/source/read_transaction.py",
        "if target.filenode is not None and not form", "if False and not form",
        "tests/integration/snapshot/test_chunk.py -k h71",
    ),
    Mutant(
        "take every new file for the same rows", "snapshot/later/watch_rules.py",
        "not (now.born and before.born == now.born)", "not now.born", "tests/unit/snapshot/later/test_watch_rules.py",
    ),
    Mutant(
        "let the first request have every reader", "snapshot/later/table_reading.py",
        "key=lambda reading: (reading.out, reading.turn)", "key=lambda reading: 0",
        "tests/unit/snapshot/later/test_table_reading.py",
    ),
    Mutant(
        "try what fails for ever", "snapshot/later/table_reading.py",
        "return self.failures <= MOST_FAILURES", "return self.failures <= 10**9",
        "tests/unit/snapshot/later/test_table_reading.py",
    ),
    Mutant(
        "read a partition that was detached", "snapshot/source/read_transaction.py",
        "    if not form.belongs:", "    if False:", "tests/integration/capture/test_later_faults.py -k h86",
    ),
    Mutant(
        "put a condition's text into a statement as it is", "snapshot/later/window_read.py",
        "return sql.Literal(text)", "return sql.SQL(\"'\" + text + \"'\")",
        "tests/unit/snapshot/later/test_condition_sql.py",
    ),
    Mutant(
        "compare what is published, not the entries that publish it", "snapshot/later/watch_rules.py",
        "before.entries != now.entries", "False", "tests/unit/snapshot/later/test_watch_rules.py",
    ),
    Mutant(
        "pass over a partition that no look saw", "snapshot/later/watch_rules.py",
        "streamed.keys() - now.links.keys()", "not streamed.keys() and False",
        "tests/unit/snapshot/later/test_watch_rules.py",
    ),
    Mutant(
        "decline what was rewritten with what was republished", "snapshot/later/catalog_watch.py",
        "return need(replace(before, entries=now.entries), now, empty, streamed, announced)", "return None",
        "tests/integration/capture/test_watch.py -k h144",
    ),
    Mutant(
        "pass over names that a column had for a while", "snapshot/later/watch_rules.py",
        "if old != new]", "if False]", "tests/unit/snapshot/later/test_watch_rules.py",
    ),
    Mutant(
        "take a partition that was attached again for one that stayed", "snapshot/later/watch_rules.py",
        "now.links.get(oid, born) != born", "False", "tests/unit/snapshot/later/test_watch_rules.py",
    ),
    Mutant(
        "take a new attribute of a composite for a new label", "snapshot/later/watch_rules.py",
        """kind[:1] == "c" and kind in known""", "False", "tests/unit/snapshot/later/test_watch_rules.py",
    ),
    Mutant(
        "call a row equal that the log never had", "snapshot/later/chunk_queue.py",
        "            if was != row:\n", "            if was not in (None, row):\n", _DIFFERENCES,
    ),
    Mutant(
        "pass over rows that a reading did not find", "snapshot/later/chunk_queue.py",
        "            self._differing.update(", "            set().update(", _DIFFERENCES,
    ),
    Mutant(
        "say nothing of the LSN that a window was read at", "snapshot/source/read_transaction.py",
        "return replace(around, suffix=read_at(around.suffix, seen_lsn))", "return around",
        "tests/unit/snapshot/later/test_window_read.py",
    ),
)  # fmt: skip
