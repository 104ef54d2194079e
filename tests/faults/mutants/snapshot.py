"""Rules of ``snapshot``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "forget how the first snapshot found the publication", "snapshot/watch.py",
        "        entries=plan.entries,\n", "", "tests/unit/snapshot/test_watch.py",
    ),
    Mutant(
        "read a chunk whose file moved", "snapshot/chunk.py",
        "if not form.cut_filenode == form.filenode == task.chunk.filenode:", "if False:",
        "tests/integration/snapshot/test_chunk.py -k h71",
    ),
    Mutant(
        "take every new file for the same rows", "snapshot/watch.py",
        "not (now.born and before.born == now.born)", "not now.born", "tests/unit/snapshot/test_watch.py",
    ),
    Mutant(
        "let the first request have every reader", "snapshot/jobs.py",
        "key=lambda job: (job.out, job.turn)", "key=lambda job: 0", "tests/unit/snapshot/test_jobs.py",
    ),
    Mutant(
        "try what fails for ever", "snapshot/jobs.py",
        "return self.failures <= MOST_FAILURES", "return self.failures <= 10**9", "tests/unit/snapshot/test_jobs.py",
    ),
    Mutant(
        "read a partition that was detached", "snapshot/window.py",
        "    if not form[3]:", "    if False:", "tests/integration/capture/test_later_faults.py -k h86",
    ),
    Mutant(
        "put a condition's text into a statement as it is", "snapshot/condition.py",
        "return sql.Literal(text)", "return sql.SQL(\"'\" + text + \"'\")", "tests/unit/snapshot/test_condition.py",
    ),
    Mutant(
        "compare what is published, not the entries that publish it", "snapshot/watch.py",
        "before.entries != now.entries", "False", "tests/unit/snapshot/test_watch.py",
    ),
    Mutant(
        "take a partition that was attached again for one that stayed", "snapshot/watch.py",
        "now.links.get(oid, born) != born", "False", "tests/unit/snapshot/test_watch.py",
    ),
    Mutant(
        "take a new attribute of a composite for a new label", "snapshot/watch.py",
        """kind[:1] == "c" and kind in known""", "False", "tests/unit/snapshot/test_watch.py",
    ),
)  # fmt: skip
