"""Rules of the outbox and of histories, broken on purpose."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_OUTBOX = "tests/integration/capture/test_outbox.py -m 'not slow'"
_HISTORY = "tests/unit/cdc/capture/test_history.py"
_FRAMES = "tests/unit/connectors/postgres/assembly/test_outbox_frames.py"
_KEPT = "tests/contract/test_histories.py -m 'not slow'"
_PAST = "tests/integration/spark/test_histories.py -m slow"
_CUTS = "tests/unit/spark/frames/test_event_cuts.py"
_BATCHES = "tests/unit/spark/test_stream_batches.py"
_WATERMARKS = "tests/unit/spark/frames/test_history_watermarks.py"
_TYPED = "spark/streams/typed_events.py"
_WINDOWS = "tests/integration/spark/test_streams.py -m slow -k lost_checkpoint"
_PAST = "tests/integration/spark/test_histories.py"
_EVENTS = "connectors/postgres/assembly/outbox_events.py"

MUTANTS = (
    Mutant(
        "look at one tail for a table and its history", "cdc/capture/history.py",
        'pos > tails.get(history, b"")', 'pos > tails.get(lane, b"")', _HISTORY,
    ),
    Mutant(
        "go on from the higher tail of a table and its history", "cdc/capture/history.py",
        "return min(known)", "return max(known)", _HISTORY,
    ),
    Mutant(
        "leave a history without the record that is too large", "cdc/capture/history.py",
        "            return history, key, gap, [headers[0], (OP, GAP_OP.encode()), *at]\n",
        "            return history, key, value, headers\n", _HISTORY,
    ),
    Mutant(
        "begin a history in the middle without a gap", "connectors/session/histories.py",
        "        if anew or topic in begun:\n", "        if anew:\n",
        "tests/integration/capture/test_history.py -k begins_later",
    ),
    Mutant(
        "let events count among a table's changes", _EVENTS,
        "self._tx.events += 1\n", "self._tx.events += 1; self._tx.seq += 1\n", _FRAMES,
    ),
    Mutant(
        "take a message undecoded whose prefix is another", _EVENTS,
        "or frame[_PREFIX_AT:start] != self._prefix ", "", _FRAMES,
    ),
    Mutant(
        "take a message that may belong to a rolled-back transaction", _EVENTS,
        "        if not message.transactional:\n", "        if False:\n",
        "tests/integration/capture/test_outbox.py -k no_event",
    ),
    Mutant(
        "take messages of every prefix", _EVENTS,
        "message.prefix != self._ports.rules.prefix or self._tx.skipped", "self._tx.skipped",
        "tests/integration/capture/test_outbox.py -k no_event",
    ),
    Mutant(
        "let a pattern take the outbox table", "cdc/settings/event_settings.py",
        "    return (outbox.table,) if outbox.table is not None else ()\n", "    return ()\n",
        "tests/unit/cdc/capture/test_outbox.py",
    ),
    Mutant(
        "let a record of a history be of its key alone", "sinks/contract/history_rows.py",
        "        \"key\": key,\n", "", f"{_KEPT} -k stays_one",
    ),
    Mutant(
        "fill a history anew, emptied, where its topic was made anew", "spark/stores/store_tables.py",
        "empty=not (one.offsets or one.shape.history)", "empty=not one.offsets", f"{_KEPT} -k made_anew",
    ),
    Mutant(
        "pass over what went from a history's topic by its age", "spark/stores/store_thread.py",
        "        self._begin_histories()\n", "", f"{_KEPT} -k by_its_age",
    ),
    Mutant(
        "let a version of a row go on behind a truncate", "sinks/warehouse/history.sql",
        "where _op in ('t', 'sweep') group by", "where _op = 'sweep' group by", f"{_KEPT} -k fold",
    ),
    Mutant(
        "take a row that was read late for the row before a change", "sinks/warehouse/history.sql",
        "where _seen is null or cdc_next is null or cdc_next >= _seen", "", f"{_KEPT} -k fold",
    ),
    Mutant(
        "answer over a gap of a history", "sinks/warehouse/history_cuts.py",
        "    if within or (missing and", "    if (missing and", f"{_KEPT} -k fold",
    ),
    Mutant(
        "take the last later commit for the place of a time", "spark/frames/past_tables.py",
        "agg(F.min(POS)).collect()", "agg(F.max(POS)).collect()", f"{_PAST} -k e7",
    ),
    Mutant(
        "read a table as of an LSN from a frame of before", "spark/frames/past_tables.py",
        "        if any(place.get(partition, 0) < offset", "        if any(False and place.get(partition, 0) < offset",
        f"{_PAST} -k be_known",
    ),
    Mutant(
        "write a payload's numbers anew", "cdc/capture/outbox.py",
        "and text[begins] == '\"' and name != payload", "and text[begins] == '\"'",
        "tests/unit/cdc/capture/test_outbox.py",
    ),
    Mutant(
        "let the commit times of events go back", "cdc/capture/advance.py",
        "max(self.at_us, committed_us)", "committed_us", "tests/unit/cdc/capture/test_commit_times.py",
    ),
    Mutant(
        "say a time in progress that the log has not come to", "cdc/capture/advance.py",
        "next(iter(self._open)) < lsn:", "next(iter(self._open)):", "tests/unit/cdc/capture/test_commit_times.py",
    ),
    Mutant(
        "count an event again that an old capture repeats", "spark/frames/event_cuts.py",
        "        elif pos <= top:\n", "        elif False:\n", _CUTS,
    ),
    Mutant(
        "forget what lies ahead of a cut", "spark/frames/event_cuts.py",
        'max(floor, ahead.get(p, ""))', "floor", _CUTS,
    ),
    Mutant(
        "take rows of a snapshot for events", "spark/frames/event_cuts.py",
        "        elif op in _NO_EVENTS:\n", "        elif op == b'x':\n", _CUTS,
    ),
    Mutant(
        "bring no marker with a cut", "spark/frames/event_cuts.py",
        "    if marker_us:\n", "    if False:\n", _CUTS,
    ),
    Mutant(
        "write a batch that ends elsewhere for the one of its number", "spark/streams/ports.py",
        "        if list(last.cuts) != list(cuts):\n", "        if False:\n", _BATCHES,
    ),
    Mutant(
        "write a batch that stands in its topic once more", "spark/streams/ports.py",
        "        return True\n", "        return False\n", _BATCHES,
    ),
    Mutant(
        "publish two rows of one key", "spark/streams/stream_rows.py",
        "            if key == before:\n", "            if False:\n", _BATCHES,
    ),
    Mutant(
        "go on from a checkpoint of before", "spark/streams/checkpoint.py",
        "in (0, 1)", "in (-1, 0, 1)", _BATCHES,
    ),
    Mutant(
        "begin anew where the beginning is gone", "spark/streams/checkpoint.py",
        "if first > 0]", "if first > 1]", _BATCHES,
    ),
    Mutant(
        "say nothing of an empty table in its history", "snapshot/first/first_snapshot.py",
        "[*marked, *([history] if history is not None else [])]", "marked",
        "tests/integration/capture/test_history.py -k empty",
    ),
    Mutant(
        "go on from a checkpoint that lacks the topic's batch", "spark/streams/checkpoint.py",
        "last.batch in planned and ", "", "tests/unit/spark/test_stream_batches.py",
    ),
    Mutant(
        "let the rows of before a truncate stand as of an LSN", "spark/frames/past_tables.py",
        '(F.col(f"row.{POS}") >= F.lit(floor)) & ', "", f"{_PAST} -k each_cut",
    ),
    Mutant(
        "count a row that was read from the place where it stands", "spark/frames/past_tables.py",
        "(since <= limit)", "(F.col(POS) <= limit)", f"{_PAST} -k each_cut",
    ),
    Mutant(
        "leave out what a batch sets apart", "spark/streams/stream_query.py",
        "(known and not metrics.apply(one.name).getLong(0))", "known", _WINDOWS,
    ),
    Mutant(
        "set apart once more what the batch before did", "spark/streams/stream_query.py",
        'before[sources[0]] if before else ""', '""', "tests/integration/spark/test_stream_ends.py -m slow",
    ),
    Mutant(
        "count an event that is late", _TYPED,
        '        .when(time < at - late, F.lit("late"))\n', "", _WINDOWS,
    ),
    Mutant(
        "join an event with the row as it is now", "spark/streams/past_join.py",
        "(F.col(_FROM) <= moment) & (F.col(_TO).isNull() | (moment < F.col(_TO)))", "F.col(_TO).isNull()", _PAST,
    ),
    Mutant(
        "join an event with what its transaction had written before it alone", "spark/streams/past_join.py",
        'F.concat(F.substring(POS, 1, 24), F.lit("f" * 8))', "F.col(POS)", _PAST,
    ),
    Mutant(
        "join an event over a gap of the history", "spark/streams/past_join.py",
        "first = F.when(known, F.col(given.on[0]))", "first = F.when(F.lit(True), F.col(given.on[0]))", _PAST,
    ),
    Mutant(
        "join a batch before the store shows the history up to it", "spark/frames/history_watermarks.py",
        "if cut is not None and cut.highest <= shown:", "if cut is not None:", _WATERMARKS,
    ),
    Mutant(
        "let the year 9999 close all windows", _TYPED,
        '        .when(time >= at + F.expr(f"interval {AHEAD_S} seconds"), F.lit("ahead"))\n', "", _WINDOWS,
    ),
    Mutant(
        "let Spark push the filter of the markers below the watermark", _TYPED,
        '((F.col("partition") != MARKER) | time.isNull()) & time.isNotNull()', 'F.col("partition") != MARKER', _WINDOWS,
    ),
)  # fmt: skip
