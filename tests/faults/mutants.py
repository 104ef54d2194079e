"""Rules broken on purpose: each is a change of the source that a test has to notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SCHEDULES = "tests/faults/test_schedules.py"
_ASSEMBLE = "tests/unit/connectors/postgres"
_SPARK = "tests/unit/spark"
_CONTRACT = "tests/contract"
_HANDOVER = "tests/unit/cdc/handover"
_COMPARISON = "tests/unit/cdc/comparison"
_REBUILD = "tests/unit/cdc/rebuild"
_MEMORY = f"{_CONTRACT} -k memory"
_REDIS = f"{_CONTRACT} -k redis"


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` becomes ``new`` everywhere in ``file``; ``tests``: arguments of pytest, the smallest that should fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str

    def applied(self, text: str) -> str:
        """The file's text with the rule broken. ValueError when there is nothing to break any more."""
        if self.old not in text:
            raise ValueError(f"{self.name}: {self.file} has no {self.old!r} any more")
        return text.replace(self.old, self.new)


MUTANTS = (
    Mutant(
        "leave what a killed comparison made", "cdc/comparison/run.py",
        "        self.clean()\n        with ExitStack()", "        with ExitStack()", _COMPARISON,
    ),
    Mutant(
        "remove topics of others whose names begin alike", "cdc/comparison/sides.py",
        'topic.startswith(tuple(f"{head}." for head in heads))', "topic.startswith(heads)", _COMPARISON,
    ),
    Mutant(
        "keep a generation again that is in use no more", "cdc/rebuild/run.py",
        "        if run.step == Step.KEEPING:\n", "        if run.step:\n", _REBUILD,
    ),
    Mutant(
        "switch before the switch is noted", "cdc/rebuild/run.py",
        "return self._note(run.at(Step.SWITCHING))", "return run.at(Step.SWITCHING)", _REBUILD,
    ),
    Mutant(
        "remove the generation in use with those that were kept", "cdc/rebuild/run.py",
        "in_use = {generations.in_use()} if self._separate else set()", "in_use: set[int] = set()", _REBUILD,
    ),
    Mutant(
        "let the new generation's letters wait for nobody", "cdc/rebuild/letters.py",
        "return [*fresh, *(", "return [*(", _REBUILD,
    ),
    Mutant(
        "believe a watermark in a generation that has read less", "cdc/rebuild/rules.py",
        "return read and (", "return (", _REBUILD,
    ),
    Mutant(
        "hand over without what was written above the slot", "cdc/handover/run.py",
        "offsets=ends, ahead=ahead)", "offsets=ends, ahead={})", _HANDOVER,
    ),
    Mutant(
        "start Debezium before its place is noted", "cdc/handover/run.py",
        'known = self._note(replace(known, step="placed"))', 'known = replace(known, step="placed")', _HANDOVER,
    ),
    Mutant(
        "believe the first look at topics that still grow", "cdc/handover/run.py",
        "            if now == ends:\n", "            if now:\n", _HANDOVER,
    ),
    Mutant(
        "hand a slot over that stands beyond the log", "cdc/handover/run.py",
        "        require_within(slot, lsn)\n", "", _HANDOVER,
    ),
    Mutant(
        "copy a batch's rows though all of them count", "sinks/plan.py",
        "_groups(where(winners, rows))", "_groups(winners.filter(rows))", "tests/unit/sinks/test_plan.py",
    ),
    Mutant(
        "forget how the first snapshot found the publication", "snapshot/watch.py",
        "        entries=plan.entries,\n", "", "tests/unit/snapshot/test_watch.py",
    ),
    Mutant(
        "read all stored rows that fill a batch at once", "sinks/fill.py",
        "            if left < PORTION_BYTES // 4:", "            if left is None:", "tests/unit/sinks/test_fill.py",
    ),
    Mutant(
        "ask for many stored rows whatever their size", "sinks/fill.py",
        "max(1, min(most, left // max(1, row_bytes)))", "most", "tests/unit/sinks/test_fill.py",
    ),
    Mutant(
        "give a store all its rows in one piece", "sinks/plan.py",
        "if size >= most_bytes:", "if size < 0:", "tests/unit/sinks/test_plan.py",
    ),
    Mutant(
        "add silence up over what was heard", "connectors/postgres/stream.py",
        "            batch = self._take()\n        self._silent_s = 0.0", "            batch = self._take()",
        "tests/integration/session/test_silence.py",
    ),
    Mutant(
        "give a record up after a while", "connectors/kafka/clients.py",
        '"message.timeout.ms": 0,', '"message.timeout.ms": 300_000,', "tests/unit/connectors/kafka/test_clients.py",
    ),
    Mutant(
        "let a closed log's records arrive", "connectors/kafka/log.py",
        "        self._producer.purge()\n", "", "tests/unit/connectors/kafka/test_log.py",
    ),
    Mutant(
        "send on behind a lane's first record", "connectors/kafka/log.py",
        "            self._hand_over(behind)\n        self.settle()", "            self._hand_over(behind)",
        "tests/unit/connectors/kafka/test_log.py",
    ),
    Mutant(
        "send on behind a large record", "connectors/kafka/log.py",
        'partial(self._large_delivered, lane, key))\n                self.settle()',
        "partial(self._large_delivered, lane, key))", "tests/unit/connectors/kafka/test_log.py",
    ),
    Mutant(
        "carry an order out again that changed nothing", "cdc/orders.py",
        "if letter.why in (Why.RELEASED, Why.HELD):", "if letter.why is Why.RELEASED:",
        "tests/unit/cdc/test_orders.py",
    ),
    Mutant(
        "leave an order about nothing unanswered", "cdc/orders.py",
        'answers.append(_answer(queue.order, Why.HELD, "nothing waits under this key any more", identity))', "pass",
        "tests/unit/cdc/test_orders.py",
    ),
    Mutant(
        "acknowledge what no progress record says", "cdc/capture.py",
        "session.stream.acknowledge(advance.position)", "session.stream.acknowledge(advance.held + 8)", _SCHEDULES,
    ),
    Mutant(
        "take a progress record for held when it is written", "cdc/advance.py",
        "self._writing = (group, self.held)", "self._writing, self.position = (group, self.held), self.held",
        _SCHEDULES,
    ),
    Mutant(
        "let a keepalive pass what the broker owes", "cdc/advance.py",
        "        self._reach(wal_end, group)", "        self.held = max(self.held, wal_end)", _SCHEDULES,
    ),
    Mutant(
        "believe a keepalive inside a transaction", "cdc/capture.py",
        "if wal_end is not None and not session.assembler.in_transaction:", "if wal_end is not None:", _SCHEDULES,
    ),
    Mutant(
        "take the record's LSN for the commit's", "connectors/postgres/assemble.py",
        '(POS, pos % seq)', '(POS, pos[:8] + b"%016x" % lsn + pos[24:] % seq)', _SCHEDULES,
    ),
    Mutant(
        "end a transaction one record further", "connectors/postgres/assemble.py",
        "end_lsn=commit.end_lsn,", "end_lsn=commit.end_lsn + 8,", _SCHEDULES,
    ),
    Mutant(
        "skip the transaction that begins where the progress ends", "connectors/postgres/seen.py",
        "return commit_lsn < self._after_lsn", "return commit_lsn <= self._after_lsn", _SCHEDULES,
    ),
    Mutant(
        "send the last record of a tail again", "connectors/postgres/seen.py",
        "pos <= self._lanes.get", "pos < self._lanes.get", _SCHEDULES,
    ),
    Mutant(
        "look at no tail", "connectors/kafka/tail.py",
        "return {**ahead, **look(tails)}", "return {**ahead}", _SCHEDULES,
    ),
    Mutant(
        "forget which partitions are ahead of the progress", "connectors/kafka/tail.py",
        "return {**ahead, **look(tails)}", "return look(tails)", _SCHEDULES,
    ),
    Mutant(
        "do not say which partitions are ahead", "cdc/capture.py",
        "ahead=session.log.ahead(lsn)", "ahead={}", _SCHEDULES,
    ),
    Mutant(
        "forget after a restart which partitions are ahead", "connectors/kafka/log.py",
        "self._newest[lane] = position.text().encode()", "pass", _SCHEDULES,
    ),
    Mutant(
        "take one partition's report for all", "connectors/kafka/log.py",
        "group.left -= 1", "group.left = 0", _SCHEDULES,
    ),
    Mutant(
        "do not compare offsets", "connectors/kafka/log.py",
        "if offset != expected - 1:", "if offset > expected:", "tests/unit/connectors/kafka",
    ),
    Mutant(
        "say nothing of a failed record", "connectors/kafka/log.py",
        "            self._fail(refusal(error, topic, None, self._settings))\n            return\n",
        "            return\n", _SCHEDULES,
    ),
    Mutant(
        "settle nothing at COMMIT", "connectors/postgres/routes.py",
        "self.netted = self.schema.deferrable_key", "self.netted = False", _SCHEDULES,
    ),
    Mutant(
        "count no row that went", "connectors/postgres/netting.py",
        "self._count(table, key, row, lsn, -1)", "pass", _SCHEDULES,
    ),
    Mutant(
        "keep netted rows over a truncation", "connectors/postgres/changes.py",
        "        self._netting.forget(table.schema.oid)\n", "", _SCHEDULES,
    ),
    Mutant(
        "do not look where netting is unclear", "connectors/postgres/netting.py",
        "unclear=len(came) > 1 or len(went) > 1", "unclear=False", _ASSEMBLE,
    ),
    Mutant(
        "truncate one partition only", "connectors/postgres/changes.py",
        "range(table.lane, table.lane + table.lane_count)", "range(table.lane, table.lane + 1)", _ASSEMBLE,
    ),
    Mutant(
        "write no tombstone", "connectors/postgres/assemble.py",
        "if route.deletes:", "if False:", _ASSEMBLE,
    ),
    Mutant(
        "leave the old key of a moved row", "connectors/postgres/changes.py",
        "        self._remove(table, lsn, seq, old_key, old, [(NEW_KEY, new_key)])\n", "", _SCHEDULES,
    ),
    Mutant(
        "count no number for a table that is not captured", "connectors/postgres/assemble.py",
        "seq = self._tx.take(numbers(message))", "seq = self._tx.take(numbers(message) if table else 0)", _ASSEMBLE,
    ),
    Mutant(
        "let progress pass a record that waits", "cdc/advance.py",
        "self.held = max(self.held, min(self._stored, self._floor))", "self.held = self._stored", _SCHEDULES,
    ),
    Mutant(
        "take what waited for stored once it was handed over", "cdc/advance.py",
        "self._floors.append((group, found))", "self._floor = found", _SCHEDULES,
    ),
    Mutant(
        "set a table aside before that is noted", "connectors/postgres/assemble.py",
        "            self._asides.set_aside(table, why, self._tx.lsn if oldest is None else oldest, self._tx.xid)\n"
        "            for one in known:\n                self._leave(one)\n",
        "            for one in known:\n                self._leave(one)\n"
        "            self._asides.set_aside(table, why, self._tx.lsn if oldest is None else oldest, self._tx.xid)\n",
        _ASSEMBLE,
    ),
    Mutant(
        "say that a table lacks changes from the last transaction on", "connectors/postgres/assemble.py",
        "self._tx.lsn if oldest is None else oldest", "self._tx.lsn", _ASSEMBLE,
    ),
    Mutant(
        "let what is on its way of a table that is set aside through", "connectors/postgres/waiting.py",
        "        self.left.update(lanes)\n", "", _ASSEMBLE,
    ),
    Mutant(
        "leave out of the progress record what it does not speak of", "cdc/capture.py",
        "ahead=session.log.ahead(lsn), aside=aside", "ahead=session.log.ahead(lsn)",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "write what was dropped of a table behind its reading", "cdc/aside.py",
        "            found[one.table] = max(until, found.get(one.table, until))\n", "            pass\n",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "drop what comes of a table that is followed again", "connectors/postgres/assemble.py",
        "        self._outlet.arrived()\n        relation = ", "        relation = ", _ASSEMBLE,
    ),
    Mutant(
        "take what was noted when the session began for what is", "connectors/session/opening.py",
        "aside=tables.asides.of,", "aside=tables.asides.documents.get,",
        "tests/integration/capture/test_aside.py",
    ),
    Mutant(
        "set a history aside", "connectors/session/asides.py",
        "            if name in self._histories:\n                raise why\n", "",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "take a reading from before for the one that is due", "cdc/aside.py",
        "floor_lsn >= self.from_lsn & ~COMMIT_ALIGNMENT", "True", "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "read a table that is set aside", "connectors/session/asides.py",
        "        return known.sentence()\n\n    def asked", "        return \"\"\n\n    def asked",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "hold windows of all tables back with one that waits", "cdc/windows.py",
        "max(moment.position, moment.stored) if moment.waiting else moment.position", "moment.position",
        "tests/unit/cdc/test_windows_waiting.py",
    ),
    Mutant(
        "write a window's rows before what waits of its table", "cdc/windows.py",
        "if window.overrun or window.lane in moment.waiting:", "if window.overrun:",
        "tests/unit/cdc/test_windows_waiting.py",
    ),
    Mutant(
        "grant a window above what waits of its table", "cdc/windows.py",
        "window.overrun = window.lane in moment.waiting", "pass", "tests/unit/cdc/test_windows_waiting.py",
    ),
    Mutant(
        "keep files of waiting records that were read out", "connectors/postgres/spilled.py",
        "            self._segments.popleft().close()\n        elif", "            pass\n        elif",
        "tests/unit/connectors/postgres/test_spilled.py",
    ),
    Mutant(
        "let a record overtake those of its table that wait", "connectors/postgres/outlet.py",
        "return self._sorted if self._waiting else", "return", _SCHEDULES,
    ),
    Mutant(
        "count an update with an old row as one record", "connectors/postgres/messages.py",
        "return 1 if change.key is None and change.old is None else 3", "return 1", _ASSEMBLE,
    ),
    Mutant(
        "let what one table leaves to settle move another's positions", "connectors/postgres/changes.py",
        "self._settled.get(table.lane, 0)", "sum(self._settled.values())", _ASSEMBLE,
    ),
    Mutant(
        "trust what was netted under another numbering", "connectors/postgres/assemble.py",
        "if self._renumbered and table.netted:", "if False:", _ASSEMBLE,
    ),
    Mutant(
        "write an unchanged value as null", "connectors/postgres/held.py",
        "known = selected[i] if", "known = None if", _SCHEDULES,
    ),
    Mutant(
        "let records overtake one that waits for its values", "connectors/postgres/outlet.py",
        "            self._held.wait(pending)\n            self.emit = self._next()\n",
        "            self._held.wait(pending)\n", _SCHEDULES,
    ),
    Mutant(
        "remember a wide row beyond its transaction", "connectors/postgres/changes.py",
        "        self._recent.clear()\n", "", _ASSEMBLE,
    ),
    Mutant(
        "read a value past the end of its message", "connectors/postgres/pgoutput.py",
        "            if stop > end:\n", "            if False:\n", "tests/unit/connectors/postgres/test_pgoutput.py",
    ),
    Mutant(
        "leave bytes of a message over", "connectors/postgres/pgoutput.py",
        "    reader.end()\n", "", "tests/unit/connectors/postgres/test_pgoutput.py",
    ),
    Mutant(
        "match text that nulls may follow", "connectors/postgres/compiled.py",
        'walked=tier == "loose" and form.anything', "walked=False", "tests/unit/connectors/postgres/test_row_steps.py",
    ),
    Mutant(
        "match a text key that nulls follow", "connectors/postgres/compiled.py",
        "if whole or not any(", "if whole or any(", "tests/unit/connectors/postgres/test_row_steps.py",
    ),
    Mutant(
        "make the digits of any scale", "cdc/wire/plain.py",
        "_MOST_DIGITS = 131_072", "_MOST_DIGITS = 1 << 99", "tests/unit/cdc/wire/test_plain.py -k h94",
    ),
    Mutant(
        "try each place of each star", "cdc/topic.py",
        "(?>.*?{part})", ".*{part}", "tests/unit/connectors/postgres/test_selection.py",
    ),
    Mutant(
        "take a row that was cut short for a whole one", "connectors/postgres/reading.py",
        "if at != len(frame): break", "pass", "tests/unit/connectors/postgres/test_encoder.py",
    ),
    Mutant(
        "believe a value's length", "connectors/postgres/reading.py",
        "        if sized:\n", "        if not sized:\n", "tests/unit/connectors/postgres tests/faults/test_rows.py",
    ),
    Mutant(
        "tell the server what was received", "connectors/postgres/frames.py",
        "flushed=self.position", "flushed=written", "tests/unit/connectors/postgres/test_frames.py",
    ),
    Mutant(
        "apply an older row (store in memory)", "sinks/memory.py",
        "held.pos > pos", "held.pos > pos > held.pos", _MEMORY,
    ),
    Mutant(
        "apply an older row (cache)", "sinks/cache/write.lua",
        "elseif held and held > pos then", "elseif held and held > pos and false then", _REDIS,
    ),
    Mutant(
        "ignore a row of the same position", "sinks/memory.py",
        "held.pos > pos", "held.pos >= pos", _MEMORY,
    ),
    Mutant(
        "forget a delete at once", "sinks/memory.py",
        "memory.forget_ns[table, key] = until", "del rows[key]", _MEMORY,
    ),
    Mutant(
        "forget a delete at once (cache)", "sinks/cache/write.lua",
        "redis.call('PEXPIRE', key, ARGV[1])", "redis.call('DEL', key)", _REDIS,
    ),
    Mutant(
        "let a row expire with the delete before it", "sinks/cache/write.lua",
        "      redis.call('PERSIST', key)\n", "", "tests/integration/sinks/test_cache.py",
    ),
    Mutant(
        "ignore the floor", "sinks/plan.py",
        "return where(rows, pc.greater_equal(rows[POS], floor)) if floor else rows", "return rows", _MEMORY,
    ),
    Mutant(
        "keep the floor in mind only", "sinks/notes.py",
        "                self._notes.write(name, after.to_json())\n", "", _MEMORY,
    ),
    Mutant(
        "sweep at the first partition's mark", "sinks/notes.py",
        "return len(told) >= sweeps[floor][0]", "return bool(told)", _MEMORY,
    ),
    Mutant(
        "sweep what stands at the floor (cache)", "sinks/cache/sweep.lua",
        "held < ARGV[1]", "held <= ARGV[1]", f"{_CONTRACT}/test_boundaries.py -k redis",
    ),
    Mutant(
        "sweep what stands at the floor (Delta)", "sinks/delta/delta_store.py",
        "f\"{POS} < '{floor}'\"", "f\"{POS} <= '{floor}'\"", f"{_CONTRACT}/test_boundaries.py -k delta",
    ),
    Mutant(
        "sweep what stands at the floor (SQL)", "sinks/sql/sql_store.py",
        "where(table.c[POS] < floor)", "where(table.c[POS] <= floor)", f"{_CONTRACT}/test_boundaries.py -k sqlite",
    ),
    Mutant(
        "sweep before the floor is noted", "sinks/store.py",
        "        for table, floor in self._floors.tell(marks).items():\n",
        "        for mark in marks:\n            self._prepare_for(shapes[mark.table], schemas)\n"
        "            self._store.remove_below(shapes[mark.table], mark.floor)\n"
        "        for table, floor in self._floors.tell(marks).items():\n",
        f"{_CONTRACT}/test_boundaries.py -k memory",
    ),
    Mutant(
        "take a busy search server for one that refuses", "sinks/search/search_bulk.py",
        "_BUSY = frozenset((429, 500,", "_BUSY = frozenset((500,", "tests/unit/sinks/search/test_search_bulk.py",
    ),
    Mutant(
        "take a position over epoch 127", "sinks/newest.py",
        "(digits[:, 6] <= _SEVEN)", "(digits[:, 6] <= 255)", f"{_CONTRACT}/test_refusals.py -k memory",
    ),
    Mutant(
        "repair at the fence", "cdc/verification/repair.py",
        "settled = certain_cut(source, clock).settled", "settled = certain_cut(source, clock).fence",
        "tests/unit/cdc/verification/test_repair.py",
    ),
    Mutant(
        "settle for what commits while a cut waits", "connectors/postgres/cut.py",
        '            settled = self._number("insert_lsn")\n            certain = self._wait_for_visibility()\n',
        '            certain = self._wait_for_visibility()\n            settled = self._number("insert_lsn")\n',
        "tests/integration/catalog/test_cut.py",
    ),
    Mutant(
        "call a position of the future undecided", "cdc/verification/compare.py",
        "if ceiling is not None and pos is not None and pos > ceiling:", "if ceiling == pos and pos is None:",
        "tests/unit/cdc/verification/test_rounds.py",
    ),
    Mutant(
        "take away whatever stands under a key", "sinks/memory.py",
        "if key in rows and rows[key].pos == pos:", "if key in rows:",
        f"{_CONTRACT}/test_foreign.py -k memory",
    ),
    Mutant(
        "end the application for a table that a store does not take", "spark/holds.py",
        "        if newest is None or newest.topic in self.now:\n", "        if True:\n",
        "tests/unit/spark/test_holds.py",
    ),
    Mutant(
        "believe the offsets of the epoch before", "connectors/debezium/progress.py",
        "lsn = None if epochs.unsettled else self._shown(list(self._ask()))", "lsn = self._shown(list(self._ask()))",
        "tests/unit/connectors/debezium/test_progress.py",
    ),
    Mutant(
        "sweep a table that no progress names", "spark/watermark.py",
        "known = [topic for topic in some if self._history.names(topic)]", "known = list(some)",
        "tests/unit/spark/test_sweeps.py",
    ),
    Mutant(
        "sweep below an epoch that no reading began", "spark/watermark.py",
        "if mark is not None and mark.reread}", "if mark is not None}", "tests/unit/spark/test_sweeps.py",
    ),
    Mutant(
        "show an epoch without its sweep", "spark/store.py", "        self._sweep(at)\n", "",
        "tests/unit/spark/test_sweeps.py",
    ),
    Mutant(
        "take a failover for records sent again", "cdc/wire/debezium/falls.py",
        "            if origin.number > known:\n", "            if False:\n",
        "tests/unit/cdc/wire/debezium/test_falls.py",
    ),
    Mutant(
        "take an unknown server for one sent again", "cdc/wire/debezium/falls.py",
        "            if known is None:\n", "            if False:\n", "tests/unit/cdc/wire/debezium/test_falls.py",
    ),
    Mutant(
        "wait for ever for positions to climb back", "cdc/wire/debezium/falls.py",
        "elif time_ms - self._fall.at_ms > BOUND_MS:", "elif False:", "tests/unit/cdc/wire/debezium/test_falls.py",
    ),
    Mutant(
        "forget that positions fell", "spark/debezium.py",
        "        if epochs.fell:\n            raise _fallen(epochs.fell)\n", "",
        "tests/unit/spark/test_debezium.py",
    ),
    Mutant(
        "begin in the middle without a look back", "spark/debezium.py",
        "        self._look_back(listed, epochs)\n", "        self._look_back(listed, epochs, ())\n",
        "tests/unit/spark/test_debezium.py",
    ),
    Mutant(
        "take a snapshot on request for one cut short", "spark/debezium.py",
        "if any(reader.over >= pos.epoch for reader in self._readers.values()):", "if False:",
        "tests/unit/spark/test_debezium.py",
    ),
    Mutant(
        "go on where a new epoch began before", "spark/store.py", "        self._go_back()\n", "",
        "tests/unit/spark/test_sweeps.py",
    ),
    Mutant(
        "take Debezium's NULL for a value", "cdc/wire/debezium/read.py",
        "unsaid = {} if self._reselected else _unsaid(shape, payload)", "unsaid: dict[str, Any] = {}",
        "tests/unit/cdc/wire/debezium/test_unsaid.py",
    ),
    Mutant(
        "keep a value that may have become NULL", "sinks/unavailable.py",
        "if either and (stored is None or set(either.values()) != {b\"null\"}):", "if False:",
        f"{_CONTRACT}/test_unavailable.py -k memory",
    ),
    Mutant(
        "take a flat delete for a row", "cdc/wire/debezium/read.py",
        'if str(payload.get("__deleted")).lower() == "true" or op == "d":', 'if op == "d":',
        "tests/unit/cdc/wire/debezium/test_read.py",
    ),
    Mutant(
        "take the last offset for the newest", "sinks/newest.py",
        'words = _characters(rows[POS]).view(">u8")', 'words = _characters(rows[POS]).view(">u8") * 0',
        "tests/unit/sinks/test_newest.py",
    ),
    Mutant(
        "write the watermark before the data", "spark/store.py",
        "        return self.conclude(self._holding(lambda: act(",
        "        self._commit(at)\n        return self.conclude(self._holding(lambda: act(", _SPARK,
    ),
    Mutant(
        "write the watermark before the letters", "spark/store.py",
        '        letters = self._parked.fresh(replace(letter, sink=self.name) for letter in outcome.letters)\n',
        "        self._commit(at)\n"
        '        letters = self._parked.fresh(replace(letter, sink=self.name) for letter in outcome.letters)\n', _SPARK,
    ),
    Mutant(
        "bury a letter at every replay", "cdc/dead.py",
        " for letter in letters if not self._holds(letter)}", " for letter in letters}", _SPARK,
    ),
    Mutant(
        "claim the LSN of a record not yet passed", "spark/history.py",
        "passed = passed if first is None else min(passed, first)", "continue", _SPARK,
    ),
    Mutant(
        "claim an LSN across a hole", "spark/watermark.py",
        "sound = self._ends.without_holes(at, topics.ids, topics.compaction_lag_s)", "sound = True", _SPARK,
    ),
    Mutant(
        "believe a store that was restored", "spark/place.py",
        "    found = opened.watermarks.read()\n", "    found = held\n", _SPARK,
    ),
    Mutant(
        "let a slot be ahead of the log", "connectors/postgres/slot.py",
        "slot.confirmed_flush_lsn > position:", "slot.confirmed_flush_lsn > position + 2**63:",
        "tests/integration/capture/test_refusals.py -k h81",
    ),
    Mutant(
        "re-select what is not visible yet", "connectors/postgres/reselect.py",
        "if not all(seen.sees(xid) for xid in xids):", "if False:", "tests/integration/catalog/test_reselect.py",
    ),
    Mutant(
        "take a refused key for gone before its commit is visible", "connectors/postgres/reselect.py",
        "return all(", "return True or all(", "tests/integration/catalog/test_reselect.py",
    ),
    Mutant(
        "read a chunk whose file moved", "snapshot/chunk.py",
        "if not form.cut_filenode == form.filenode == task.chunk.filenode:", "if False:",
        "tests/integration/snapshot/test_chunk.py -k h71",
    ),
    Mutant(
        "let row security hide rows", "connectors/postgres/session.py",
        '"row_security": "off"', '"row_security": "on"', "tests/integration/snapshot/test_refusals.py -k h27",
    ),
    Mutant(
        "let the role's timeouts end a session", "connectors/postgres/session.py",
        '        "idle_in_transaction_session_timeout": "0",\n', "",
        "tests/integration/snapshot/test_refusals.py -k h92",
    ),
    Mutant(
        "go on with a promoted standby that misses what the log holds", "connectors/postgres/failover.py",
        "lsn > self.switch_lsn", "lsn > self.switch_lsn + 2**32", "tests/unit/connectors/postgres/test_failover.py",
    ),
    Mutant(
        "take every new file for the same rows", "snapshot/watch.py",
        "not (now.born and before.born == now.born)", "not now.born", "tests/unit/snapshot/test_watch.py",
    ),
    Mutant(
        "write an older window's row behind a newer one's", "cdc/windows.py",
        "                    self._outdate(window, records)\n", "", "tests/unit/cdc/test_windows_beside.py",
    ),
    Mutant(
        "count a mark for its own sweep alone", "sinks/notes.py",
        "if other >= floor", "if other == floor", "tests/unit/sinks/test_rows.py",
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
        "let a wish count for a newer request", "cdc/state.py",
        "if wish is None or wish.serial != request.serial:", "if wish is None:", "tests/unit/snapshot/test_heard.py",
    ),
    Mutant(
        "read a partition that was detached", "snapshot/window.py",
        "    if not form[3]:", "    if False:", "tests/integration/capture/test_later_faults.py -k h86",
    ),
    Mutant(
        "take any column for a captured one", "cdc/rereads/rules.py",
        "    if unknown:", "    if False:", "tests/unit/snapshot/test_condition.py",
    ),
    Mutant(
        "put a condition's text into a statement as it is", "snapshot/condition.py",
        "return sql.Literal(text)", "return sql.SQL(\"'\" + text + \"'\")", "tests/unit/snapshot/test_condition.py",
    ),
    Mutant(
        "let a condition end behind its first part", "cdc/condition.py",
        "    parser.end()\n", "", "tests/unit/cdc/test_condition.py",
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
    Mutant(
        "read the catalog before the DDL is visible", "connectors/session/relations.py",
        "            self._visible(str(table))", "            pass", "tests/integration/capture/test_looks.py -k h97",
    ),
    Mutant(
        "take a captured relation's new name for its own", "connectors/session/relations.py",
        "if not former or table in former or self._taken(table, oid):", "if True:",
        "tests/integration/capture/test_looks.py -k swap",
    ),
    Mutant(
        "keep what is streamed from the gate", "cdc/capture.py",
        "session.windows.gate.streamed(commit.xid for commit in commits)", "pass",
        "tests/integration/capture/test_later_gate.py -k read_before",
    ),
    Mutant(
        "try again at once whenever a session opened", "cdc/capture.py",
        "capture is not None and capture.progressed", "capture is not None", "tests/unit/cdc/test_capture.py",
    ),
    Mutant(
        "let a foreign position count as ours", "cdc/stale.py",
        "pos[:8] == self._epoch_text and ", "", "tests/unit/cdc/test_stale.py",
    ),
    Mutant(
        "list partitions by a function that locks them", "connectors/postgres/queries.sql",
        "join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending",
        "join lateral (select relid as inhrelid from pg_partition_tree(t.oid) where level = 1) i on true",
        "tests/integration/catalog/test_looks.py -k h95",
    ),
    Mutant(
        "read a document of a newer format", "cdc/stored.py",
        "if found > newest:", "if False:", "tests/unit/cdc/test_stored.py",
    ),
    Mutant(
        "take a member for what another version meant by it", "cdc/stored.py",
        "return value if isinstance(value, kind) else _wrong(name)", "return value", "tests/unit/cdc/test_stored.py",
    ),
    Mutant(
        "take a slot for a stranger's when its owner was not read", "cdc/checks/postgres.py",
        "    if isinstance(known, Unknown):\n        yield _slot_of_somebody(slot, settings)\n        return\n",
        "    if isinstance(known, Unknown):\n        known = None\n",
        "tests/unit/cdc/checks/test_postgres.py",
    ),
    Mutant(
        "drop any slot of the pipeline's name", "cdc/checks/ownership.py",
        "return Owner.UNKNOWN", "return Owner.OURS", "tests/unit/cdc/checks/test_postgres.py -k whose",
    ),
    Mutant(
        "let two captures in", "connectors/postgres/slot.py",
        "return bool(row and row[0])", "return True", "tests/integration/capture/test_refusals.py -k h14",
    ),
    Mutant(
        "let a slice of a batch take one record more", "cdc/wire/records.py",
        "fitting = bisect_right(sums, left)", "fitting = min(len(sums), bisect_right(sums, left) + 1)",
        f"{_SPARK}/test_batch.py",
    ),
    Mutant(
        "hide a secret inside other words", "cdc/foreign.py",
        'r"(?<!\\w)" if word[0].isalnum() else ""', '""', "tests/unit/cdc/test_foreign.py",
    ),
    Mutant(
        "take the first @ of a URL for the end of its password", "cdc/foreign.py",
        'behind.rpartition("@")', 'behind.partition("@")', "tests/unit/cdc/test_foreign.py",
    ),
    Mutant(
        "claim a partition that nobody has begun to read", "spark/batch.py",
        "for p, end in parts.items() if end >= 0}", "for p, end in parts.items()}", f"{_SPARK}/test_batch.py",
    ),
    Mutant(
        "show a lag by ends of the log that are long gone", "spark/metrics.py",
        "if figures.begun and self.log.known(now_s) else", "if figures.begun else", f"{_SPARK}/test_metrics.py",
    ),
    Mutant(
        "show slot figures that nobody has looked at", "cdc/metrics.py",
        "return value if known else math.nan", "return value", "tests/unit/cdc/test_metrics.py",
    ),
    Mutant(
        "let a login in a connector's URL pass", "connectors/debezium/secrecy.py",
        "if _has_login(rest) or", "if", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "let a reference beside a secret excuse it", "connectors/debezium/secrecy.py",
        "return bool(rest.strip())\n", "return rest == value\n", "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "leave the schema history without TLS and login", "connectors/debezium/kafka.py",
        "        yield from _HISTORY_CLIENTS\n", "        yield from ()\n",
        "tests/unit/connectors/debezium/test_secrecy.py",
    ),
    Mutant(
        "take a connector that exists for a rebalance", "connectors/debezium/client.py",
        'words.endswith("already exists")', "False", "tests/unit/connectors/debezium/test_client.py",
    ),
    Mutant(
        "leave SQL Server's database out of a renamed topic", "connectors/debezium/config.py",
        "quoted(usual_topic(settings, spelled(table)))", 'quoted(f"{settings.name}.{table}")',
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "take the topics of excluded tables", "connectors/debezium/tables.py",
        "return not _meets(source.exclude, table) and _meets", "return _meets",
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "send a snapshot's signal to a connector that passes it over", "connectors/connect/orders.py",
        'if kind == "blocking" or running.get', 'if kind or running.get',
        "tests/unit/connectors/debezium/test_tables.py",
    ),
    Mutant(
        "take a sweep mark's own place for its floor", "cdc/wire/floors.py",
        "return Floor(floor, partitions)", "return Floor(pos, partitions)", "tests/unit/cdc/wire/test_floors.py",
    ),
    Mutant(
        "compare a double in single precision", "cdc/wire/types.py",
        "canonical=Canonical.DOUBLE", "canonical=Canonical.SINGLE", "tests/unit/cdc/wire/test_types.py",
    ),
    Mutant(
        "let a warehouse hold a date as text", "cdc/wire/types.py",
        'warehouse="date32[day]"', 'warehouse="string"', "tests/unit/cdc/wire/test_types.py",
    ),
    Mutant(
        "log in to another database as to Postgres", "cdc/wiring/__init__.py",
        "    require_postgres(settings, application_name)\n", "",
        "tests/unit/connectors/debezium/test_config.py -k h130",
    ),
    Mutant(
        "keep the schemas of captured tables alone", "connectors/debezium/history.py",
        'store.only.captured.tables.ddl": "false"', 'store.only.captured.tables.ddl": "true"',
        "tests/unit/connectors/debezium/test_config.py",
    ),
    Mutant(
        "take one of two packages that bring a kind of one name", "sinks/kinds.py",
        "for point in brought}) > 1:", "for point in brought}) > 2:", "tests/unit/sinks/test_kinds.py",
    ),
    Mutant(
        "leave a sink's section unread whose kind there is not", "cdc/sink_settings.py",
        "faults.append(unknown_kind(name, kind))", "pass", "tests/unit/cdc/test_inputs.py",
    ),
    Mutant(
        "leave the package of a store's opener out of the archive", "spark/package.py",
        "return tuple(sorted(named - set(PACKAGES)))", "return ()", "tests/unit/spark/test_small.py",
    ),
    Mutant(
        "show a section that nobody checked", "cdc/sink_settings.py",
        'yield "kind", self.kind', "yield from super().__repr_args__()", "tests/unit/sinks/test_kinds.py",
    ),
    Mutant(
        "check a sink's settings when the sink is opened only", "cdc/wiring/settings.py",
        "return load(path, environment, InstalledKinds())", "return load(path, environment)",
        "tests/unit/cdc/test_inputs.py",
    ),
    Mutant(
        "deploy records that sinks cannot read", "connectors/debezium/config.py",
        "    refuse_unreadable(settings, debezium)\n", "", "tests/unit/connectors/debezium/test_tables.py",
    ),
)  # fmt: skip
