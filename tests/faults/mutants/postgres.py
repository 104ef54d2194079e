"""Rules of ``connectors/postgres``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_SCHEDULES = "tests/faults/test_schedules.py"
_ASSEMBLE = "tests/unit/connectors/postgres"

MUTANTS = (
    Mutant(
        "ask all tables that wait in one turn", "connectors/postgres/waiting.py",
        "            if refused >= _REFUSALS:\n                break\n", "",
        "tests/unit/connectors/postgres/test_waiting_queue.py",
    ),
    Mutant(
        "ask the same tables that wait in each turn", "connectors/postgres/waiting.py",
        "            self._queues.remove(queue)\n            self._queues.append(queue)\n", "",
        "tests/unit/connectors/postgres/test_waiting_queue.py",
    ),
    Mutant(
        "give each locked table of a question its own time limit", "connectors/postgres/reselect.py",
        "if oid in locked or len(locked) >= _REFUSALS:", "if oid in locked:",
        "tests/integration/catalog/test_reselect.py -k h152",
    ),
    Mutant(
        "add silence up over what was heard", "connectors/postgres/stream.py",
        "            batch = self._take()\n        self._silent_s = 0.0", "            batch = self._take()",
        "tests/integration/session/test_silence.py",
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
        "skip the transaction that begins where the progress ends", "connectors/postgres/log_tails.py",
        "return commit_lsn < self._after_lsn", "return commit_lsn <= self._after_lsn", _SCHEDULES,
    ),
    Mutant(
        "send the last record of a tail again", "connectors/postgres/log_tails.py",
        "pos <= self._lanes.get", "pos < self._lanes.get", _SCHEDULES,
    ),
    Mutant(
        "settle nothing at COMMIT", "connectors/postgres/routes.py",
        "self.netted = self.schema.deferrable_key", "self.netted = False", _SCHEDULES,
    ),
    Mutant(
        "write netted rows where a reading of their file ended", "connectors/postgres/netting.py",
        "            self._file.seek(self._end)\n", "", "tests/unit/connectors/postgres/test_netting.py",
    ),
    Mutant(
        "count no row that went", "connectors/postgres/netting.py",
        "self._count(table, key, row, lsn, -1)", "pass", _SCHEDULES,
    ),
    Mutant(
        "keep netted rows over a truncation", "connectors/postgres/transaction_changes.py",
        "        self._netting.forget(table.schema.oid)\n", "", _SCHEDULES,
    ),
    Mutant(
        "do not look where netting is unclear", "connectors/postgres/netting.py",
        "unclear=len(came) > 1 or len(went) > 1", "unclear=False", _ASSEMBLE,
    ),
    Mutant(
        "truncate one partition only", "connectors/postgres/transaction_changes.py",
        "range(table.lane, table.lane + table.lane_count)", "range(table.lane, table.lane + 1)", _ASSEMBLE,
    ),
    Mutant(
        "write no tombstone", "connectors/postgres/assemble.py",
        "if route.deletes:", "if False:", _ASSEMBLE,
    ),
    Mutant(
        "leave the old key of a moved row", "connectors/postgres/transaction_changes.py",
        "        self._remove(table, lsn, seq, old_key, old, [(NEW_KEY, new_key)])\n", "", _SCHEDULES,
    ),
    Mutant(
        "count no number for a table that is not captured", "connectors/postgres/assemble.py",
        "seq = self._tx.take(numbers(message))", "seq = self._tx.take(numbers(message) if table else 0)", _ASSEMBLE,
    ),
    Mutant(
        "set a table aside before that is noted", "connectors/postgres/assemble.py",
        "            self._asides.set_aside(table, why, self._tx.lsn if oldest is None else oldest, self._tx.xid)\n"
        "            self._unread.leave(table)\n"
        "            for one in self._compiled.shapes_of(table):\n                self._leave(one)\n",
        "            self._unread.leave(table)\n"
        "            for one in self._compiled.shapes_of(table):\n                self._leave(one)\n"
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
        "drop what comes of a table that is followed again", "connectors/postgres/assemble.py",
        "        self._outlet.arrived()\n        relation, xid = ", "        relation, xid = ", _ASSEMBLE,
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
        "let what one table leaves to settle move another's positions", "connectors/postgres/transaction_changes.py",
        "self._settled.get(table.lane, 0)", "sum(self._settled.values())", _ASSEMBLE,
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
        "remember a wide row beyond its transaction", "connectors/postgres/transaction_changes.py",
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
        "take a row that was cut short for a whole one", "connectors/postgres/row_reading.py",
        "if at != len(frame): break", "pass", "tests/unit/connectors/postgres/test_encoder.py",
    ),
    Mutant(
        "believe a value's length", "connectors/postgres/row_reading.py",
        "        if sized:\n", "        if not sized:\n", "tests/unit/connectors/postgres tests/faults/test_rows.py",
    ),
    Mutant(
        "tell the server what was received", "connectors/postgres/frames.py",
        "flushed=self.position", "flushed=written", "tests/unit/connectors/postgres/test_frames.py",
    ),
    Mutant(
        "settle for what commits while a cut waits", "connectors/postgres/cut.py",
        '            settled = self._number("insert_lsn")\n            certain = self._wait_for_visibility()\n',
        '            certain = self._wait_for_visibility()\n            settled = self._number("insert_lsn")\n',
        "tests/integration/catalog/test_cut.py",
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
        "let row security hide rows", "connectors/postgres/connections.py",
        '"row_security": "off"', '"row_security": "on"', "tests/integration/snapshot/test_refusals.py -k h27",
    ),
    Mutant(
        "let the role's timeouts end a session", "connectors/postgres/connections.py",
        '        "idle_in_transaction_session_timeout": "0",\n', "",
        "tests/integration/snapshot/test_refusals.py -k h92",
    ),
    Mutant(
        "take a timeline's number for its name", "connectors/postgres/lineage.py",
        "        shared = min(our_end, end)\n", "        shared = max(our_end, end)\n",
        "tests/unit/connectors/postgres/test_failover.py",
    ),
    Mutant(
        "take a slot that no promotion proves for the pipeline's", "connectors/postgres/failover.py",
        "(slot.confirmed_flush_lsn or 0) > begun", "True", "tests/unit/connectors/postgres/test_failover.py",
    ),
    Mutant(
        "wait for an answer without asking for a stop", "connectors/postgres/watched.py",
        "                    turn()\n", "", "tests/integration/catalog/test_watched.py",
    ),
    Mutant(
        "go on with a promoted standby that misses what the log holds", "connectors/postgres/failover.py",
        "lsn > self.switch_lsn", "lsn > self.switch_lsn + 2**32", "tests/unit/connectors/postgres/test_failover.py",
    ),
    Mutant(
        "list partitions by a function that locks them", "connectors/postgres/queries.sql",
        "join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending",
        "join lateral (select relid as inhrelid from pg_partition_tree(t.oid) where level = 1) i on true",
        "tests/integration/catalog/test_looks.py -k h95",
    ),
    Mutant(
        "look for a table by what stands before its first dot", "connectors/postgres/selection.py",
        "any(Pattern.parse(text).names(table) for text in tables)",
        "any(Pattern.parse(text).takes(TableName(*table.split('.', 1))) for text in tables)",
        "tests/unit/connectors/postgres/test_selection.py",
    ),
    Mutant(
        "let a table that is gone hide the others", "connectors/postgres/selection.py",
        "            missing(error)", "            raise error", "tests/unit/connectors/postgres/test_selection.py",
    ),
    Mutant(
        "let two captures in", "connectors/postgres/slot.py",
        "return bool(row and row[0])", "return True", "tests/integration/capture/test_refusals.py -k h14",
    ),
    Mutant(
        "let progress pass what cannot be read yet", "connectors/postgres/assemble.py",
        "return _oldest(self._waiting.oldest, self._unread.oldest)", "return self._waiting.oldest",
        "tests/unit/connectors/postgres/test_unread.py",
    ),
    Mutant(
        "take rows as they come while older ones are kept", "connectors/postgres/unread.py",
        "return not group.raw and group.awaited is None", "return group.awaited is None",
        "tests/unit/connectors/postgres/test_unread.py",
    ),
    Mutant(
        "decode what was kept in the transaction that is open", "connectors/postgres/unread.py",
        "            group.since_lsn = group.stamp.commit_lsn\n            self._tx.visit(group.stamp)\n",
        "            group.since_lsn = group.stamp.commit_lsn\n",
        "tests/unit/connectors/postgres/test_unread.py",
    ),
    Mutant(
        "leave netted rows of a table that waits with the others", "connectors/postgres/assemble.py",
        "self._changes.hand_over(oid, self._unread.begin(relation, xid))", "self._unread.begin(relation, xid)",
        "tests/unit/connectors/postgres/test_unread.py",
    ),
    Mutant(
        "drop changes under a key that cannot be followed", "connectors/postgres/assemble.py",
        "            self._set_aside(self._refused.pop(message.relation_oid))", "            pass",
        "tests/unit/connectors/postgres/test_aside.py",
    ),
    Mutant(
        "compile for each table what no change of it needs", "connectors/postgres/routes.py",
        "        self._parts: Templates | None = None\n",
        "        self._parts: Templates | None = None\n        getattr(table.encoder.rows, form)\n",
        "tests/unit/connectors/postgres/test_routes.py",
    ),
    Mutant(
        "say nothing of a value that was selected again", "connectors/postgres/held.py",
        "        elif selected:\n", "        elif False:\n", "tests/unit/connectors/postgres/test_held.py -k v25",
    ),
    Mutant(
        "say nothing of a row that netting looked up", "connectors/postgres/held.py",
        "tail = read_at(tail, answer.seen_lsn)", "pass", "tests/unit/connectors/postgres/test_netting.py",
    ),
    Mutant(
        "take a token before the commit that it is to cover", "connectors/postgres/taken_tokens.py",
        "if opened and not _commits_itself(connection):", "if False:",
        "tests/unit/connectors/postgres/test_taken_tokens.py",
    ),
    Mutant(
        "take a token before its commit where the driver says nothing", "connectors/postgres/token.sql",
        "pg_catalog.pg_current_xact_id_if_assigned() is not null", "false",
        "tests/integration/catalog/test_tokens.py -k h267",
    ),
    Mutant(
        "take a token behind the header of the next page", "connectors/postgres/token.sql",
        "within.page = 24 and within.segment <> 24", "false",
        "tests/integration/catalog/test_tokens.py -k h268",
    ),
)  # fmt: skip
