"""Rules of ``spark``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_SPARK = "tests/unit/spark"
_FRAMES = "tests/unit/spark/frames"

MUTANTS = (
    Mutant(
        "show a stream that lacks what the log holds as level", "spark/streams/stream_runner.py",
        "if self._awaited is None and _has(self._last, ends):", "if self._awaited is None:",
        "tests/unit/spark/test_stream_runner.py",
    ),
    Mutant(
        "let two runners of a stream end each other for ever", "spark/streams/stream_runner.py",
        " or isinstance(failure, ActiveError)", "", "tests/unit/spark/test_stream_runner.py",
    ),
    Mutant(
        "end the application for a table that a store does not take", "spark/stores/holds.py",
        "        if newest is None or newest.topic in self.now:\n", "        if True:\n",
        "tests/unit/spark/test_holds.py",
    ),
    Mutant(
        "claim what a view has not come to", "spark/stores/watermark.py",
        "for topic in topics.views]", "for topic in ()]", "tests/unit/spark/test_view_claims.py",
    ),
    Mutant(
        "let a view that is far behind stop the tables", "spark/stores/holds.py",
        "{*behind, *views.unheeded, *topics.streams}", "{*behind, *topics.streams}",
        "tests/unit/spark/test_view_claims.py",
    ),
    Mutant(
        "name a view no longer before it has the LSN", "spark/stores/view_claims.py",
        "if reached or not (unread or topic in before.held):", "if True:",
        "tests/unit/spark/test_view_claims.py",
    ),
    Mutant(
        "apply what the driver has not decided", "spark/queries/tasks.py",
        "return told_rows if told.undecided else", "return told_rows if False else",
        "tests/unit/spark/test_tasks.py -k h133",
    ),
    Mutant(
        "write the watermark before the data", "spark/stores/store_thread.py",
        "        return self.conclude(self._holding(lambda: act(",
        "        self._commit(at)\n        return self.conclude(self._holding(lambda: act(", _SPARK,
    ),
    Mutant(
        "write the watermark before the letters", "spark/stores/store_thread.py",
        '        letters = self._parked.fresh(replace(letter, sink=self.name) for letter in outcome.letters)\n',
        "        self._commit(at)\n"
        '        letters = self._parked.fresh(replace(letter, sink=self.name) for letter in outcome.letters)\n', _SPARK,
    ),
    Mutant(
        "claim the LSN of a record not yet passed", "spark/records/progress_history.py",
        "passed = passed if first is None else min(passed, first)", "continue", _SPARK,
    ),
    Mutant(
        "claim an LSN across a hole", "spark/stores/watermark.py",
        "sound = self._ends.without_holes(at, topics.ids, topics.compaction_lag_s)", "sound = True", _SPARK,
    ),
    Mutant(
        "believe a store that was restored", "spark/stores/place_check.py",
        "    found = opened.watermarks.read()\n", "    found = watermark\n", _SPARK,
    ),
    Mutant(
        "claim a partition that nobody has begun to read", "spark/queries/micro_batch.py",
        "for p, end in parts.items() if end >= 0}", "for p, end in parts.items()}", f"{_SPARK}/test_batch.py",
    ),
    Mutant(
        "show a lag by ends of the log that are long gone", "spark/figures/sink_metrics.py",
        "figures.up(now_s) and self.log.known(now_s))", "figures.up(now_s))", f"{_SPARK}/test_metrics.py",
    ),
    Mutant(
        "show a lag of a store that is away", "spark/figures/sink_metrics.py",
        "figures.begun and figures.up(now_s) and self.log", "figures.begun and self.log", f"{_SPARK}/test_metrics.py",
    ),
    Mutant(
        "say how old a record is that was not read", "spark/figures/sink_metrics.py",
        "        if not lacking.known:\n            return None\n", "", f"{_SPARK}/test_metrics.py",
    ),
    Mutant(
        "take topics that nobody looked at for empty", "spark/stores/watermark.py",
        "ends = highest(self._ends.newest, known)", "ends = self._ends.newest", f"{_SPARK}/test_store.py",
    ),
    Mutant(
        "be ready while a query fails", "spark/figures/sink_metrics.py",
        "if figures.failing is not None and figures.behind():", "if False:", f"{_SPARK}/test_metrics.py",
    ),
    Mutant(
        "leave the package of a store's opener out of the archive", "spark/session/package_zip.py",
        "return tuple(sorted(named - set(PACKAGES)))", "return ()", "tests/unit/spark/test_small.py",
    ),
    Mutant(
        "empty a table for a floor that nothing confirms", "spark/records/foreign_records.py",
        "if reach is not None and not known(reach):", "if False:", f"{_SPARK}/test_foreign_records.py",
    ),
    Mutant(
        "empty a table for a floor that progress refutes", "spark/records/foreign_records.py",
        "if reach is not None and reach.refutes(*place, pos):", "if False:", f"{_SPARK}/test_foreign_records.py",
    ),
    Mutant(
        "take what was ahead of progress for somebody else's", "spark/records/foreign_records.py",
        'most = max(self.most, self.progress.ahead.get(topic, {}).get(partition, ""))',
        "most = self.most", f"{_SPARK}/test_foreign_records.py",
    ),
    Mutant(
        "leave a store at rest without its server's name",
        "spark/stores/place_check.py",
        "(one.lsn, one.held, one.aside, one.lineage)",
        "(one.lsn, one.held, one.aside)",
        "tests/unit/spark",
    ),
    Mutant(
        "judge by a progress record that came too late", "spark/stores/watermark.py",
        "max([*reversed(noted), *known], key=_reached)", "noted[-1]", f"{_SPARK}/test_log_view.py",
    ),
    Mutant(
        "end with 0 though a store's last batch was refused", "spark/queries/query.py",
        "self.heed(self.store.fault or (run.fault if run is not None else None))", "", f"{_SPARK}/test_query.py",
    ),
    Mutant(
        "count outages as unknown failures", "spark/queries/query.py",
        "if self._unknown > _UNKNOWN", "if self._failures > _UNKNOWN", f"{_SPARK}/test_query.py",
    ),
    Mutant(
        "give an unknown failure one try less", "spark/queries/query.py",
        "self._unknown > _UNKNOWN", "self._unknown >= _UNKNOWN", f"{_SPARK}/test_query.py",
    ),
    Mutant(
        "wait for a silent store anew at the end", "spark/stores/store_calls.py",
        "self._around.grace_s - self.halt.since_s))", "self._around.grace_s))", f"{_SPARK}/test_worker.py",
    ),
    Mutant(
        "let a library's pool hold the end up", "spark/session/stop.py",
        "        if stop.left_behind:\n", "        if False:\n", f"{_SPARK}/test_stop.py",
    ),
    Mutant(
        "answer as of an LSN that compaction has passed", "spark/frames/frame.py",
        "        if options.as_of < oldest:\n", "        if False:\n", f"{_FRAMES}/test_as_of.py",
    ),
    Mutant(
        "believe at the end of a read what was true at its beginning", "spark/frames/frame.py",
        "        guard.require_sound(now_ms)\n", "        pass\n", f"{_FRAMES}/test_as_of.py",
    ),
    Mutant(
        "take the first old record for the last one", "spark/frames/frame.py",
        "Span(topic, p, offset - 1, offset)", "Span(topic, p, 0, offset)", f"{_FRAMES}/test_as_of.py",
    ),
    Mutant(
        "take an option that holds a secret", "spark/frames/options.py",
        "named = _SECRET.search(name) is not None and", "named = False and", f"{_FRAMES}/test_options.py",
    ),
    Mutant(
        "go on from the checkpoint of another table", "spark/frames/frame.py",
        'if document["pipeline"] != self.pipeline or set(topics) != set(self.ids):', "if False:",
        f"{_FRAMES}/test_frame.py",
    ),
    Mutant(
        "go on in a topic that was made anew", "spark/frames/frame.py",
        'if facts["id"] != self.ids[topic]:', "if False:", f"{_FRAMES}/test_frame.py",
    ),
    Mutant(
        "leave out a value that a retyped column does not hold", "spark/frames/typed_rows.py",
        'if convert is not None and outside and self._retyped == "fail":', "if False:",
        f"{_FRAMES}/test_typed_rows.py",
    ),
    Mutant(
        "split a partition between two tasks", "spark/frames/frame.py",
        "        tasks[number].append(span)\n",
        "        tasks[number].append(span._replace(end=span.end - 1))\n        tasks[0].append(span)\n",
        f"{_FRAMES}/test_plan.py",
    ),
    Mutant(
        "wait for executors in silence", "spark/session/executor_fitness.py",
        "        if not seen.waiting and (seen.executors or not seen.wanted):\n", "        if True:\n",
        "tests/unit/spark/test_executors.py",
    ),
    Mutant(
        "claim for a view that is held", "spark/stores/view_claims.py",
        "if held := self._held.get(topic):", "if False:", "tests/unit/spark/test_view_claims.py",
    ),
    Mutant(
        "go on behind a claim that the log does not have", "spark/stores/place_check.py",
        "    if claimed > newest:\n", "    if False:\n", "tests/unit/spark/test_store.py -k h222",
    ),
    Mutant(
        "know an epoch by its number alone", "cdc/record/progress.py",
        "known == identity or", "known or", "tests/unit/spark/test_its_place.py -k h227",
    ),
    Mutant(
        "go on with a table that has another key", "spark/stores/holds.py",
        "    if newest.topic in facts.rekeyed():\n", "    if False:\n",
        "tests/unit/spark/test_hold_rules.py -k h230",
    ),
    Mutant(
        "name an older progress record's server for a higher LSN", "spark/stores/watermark.py",
        " and proven.lsn >= claimed[1]:", ":",
        "tests/unit/spark/test_watermark.py",
    ),
    Mutant(
        "name the server of a progress record of another epoch", "spark/stores/watermark.py",
        "proven.epoch == claimed[0] and proven.lsn >= claimed[1]", "proven.lsn >= claimed[1]",
        "tests/unit/spark/test_watermark.py",
    ),
    Mutant(
        "name the former server of a progress record that names none", "spark/records/progress_history.py",
        "self._marks[-1].lineage == record.lineage else record.lineage",
        "record.lineage in (None, self._marks[-1].lineage) else record.lineage",
        "tests/unit/spark/test_watermark.py",
    ),
    Mutant(
        "keep a watermark's server though its LSN has moved on", "spark/stores/watermark.py",
        "known = watermark is not None and (watermark.epoch, watermark.lsn) == claimed", "known = True",
        "tests/unit/spark/test_watermark.py",
    ),
    Mutant(
        "let a request wait as long as it asks", "spark/runner/wait_page.py",
        "if not 0 <= found <= LONGEST_S:", "if not 0 <= found:",
        "tests/unit/spark/test_wait_page.py",
    ),
    Mutant(
        "say how far a fill is at every look", "spark/figures/sink_metrics.py",
        "at_s - told_s < EVERY_S", "at_s - told_s < 0",
        "tests/unit/spark",
    ),
    Mutant(
        "close a slice without looking at what its folding leaves", "spark/queries/tasks.py",
        "        if full:\n            self._fold()\n", "        if False:\n            self._fold()\n",
        "tests/unit/spark/test_tasks.py -k h255",
    ),
    Mutant(
        "count records that cannot be read as no bytes", "spark/queries/tasks.py",
        "self.letter_bytes += records.nbytes if letters else 0", "self.letter_bytes += 0",
        "tests/unit/spark/test_tasks.py -k h255",
    ),
    Mutant(
        "read a slice of a few keys without an end", "spark/queries/tasks.py",
        "(not full and read_bytes + step_bytes <= _MOST_READ * most_bytes)", "not full",
        "tests/unit/spark/test_tasks.py -k h255",
    ),
    Mutant(
        "look at a new store when it is due", "spark/queries/log_watch.py",
        'if self._is_due("ends") or self._unseen():', 'if self._is_due("ends"):',
        "tests/unit/spark/test_heads.py",
    ),
    Mutant(
        "take a silent query for level", "spark/figures/query_listener.py",
        "return self.told_s is not None and now_s - self.told_s <= SILENCE_S", "return self.told_s is not None",
        "tests/unit/spark/test_query_figures.py",
    ),
)  # fmt: skip
