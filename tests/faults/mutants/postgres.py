"""Rules of ``connectors/postgres``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_SCHEDULES = "tests/faults/test_schedules.py"
_ASSEMBLE = "tests/unit/connectors/postgres"

MUTANTS = (
    Mutant(
        "ask all tables that wait in one turn", "connectors/postgres/assembly/waiting_tables.py",
        "            if refused >= _REFUSALS:\n                break\n", "",
        "tests/unit/connectors/postgres/assembly/test_waiting_queue.py",
    ),
    Mutant(
        "ask the same tables that wait in each turn", "connectors/postgres/assembly/waiting_tables.py",
        "            self._queues.remove(queue)\n            self._queues.append(queue)\n", "",
        "tests/unit/connectors/postgres/assembly/test_waiting_queue.py",
    ),
    Mutant(
        "give each locked table of a question its own time limit", "connectors/postgres/server/reselect.py",
        "if oid in locked or len(locked) >= _REFUSALS:", "if oid in locked:",
        "tests/integration/catalog/test_reselect.py -k h152",
    ),
    Mutant(
        "add silence up over what was heard", "connectors/postgres/server/walsender.py",
        "            batch = self._take()\n        self._silent_s = 0.0", "            batch = self._take()",
        "tests/integration/session/test_silence.py",
    ),
    Mutant(
        "take the record's LSN for the commit's", "connectors/postgres/assembly/assembler.py",
        '(POS, pos % seq)', '(POS, pos[:8] + b"%016x" % lsn + pos[24:] % seq)', _SCHEDULES,
    ),
    Mutant(
        "end a transaction one record further", "connectors/postgres/assembly/assembler.py",
        "end_lsn=commit.end_lsn,", "end_lsn=commit.end_lsn + 8,", _SCHEDULES,
    ),
    Mutant(
        "skip the transaction that begins where the progress ends", "connectors/postgres/assembly/transaction.py",
        "return commit_lsn < self._after_lsn", "return commit_lsn <= self._after_lsn", _SCHEDULES,
    ),
    Mutant(
        "send the last record of a tail again", "connectors/postgres/assembly/transaction.py",
        "pos <= self._lanes.get", "pos < self._lanes.get", _SCHEDULES,
    ),
    Mutant(
        "settle nothing at COMMIT", "connectors/postgres/assembly/routes.py",
        "self.netted = self.schema.deferrable_key", "self.netted = False", _SCHEDULES,
    ),
    Mutant(
        "write netted rows where a reading of their file ended", "connectors/postgres/assembly/net_changes.py",
        "            self._file.seek(self._end)\n", "", "tests/unit/connectors/postgres/assembly/test_netting.py",
    ),
    Mutant(
        "count no row that went", "connectors/postgres/assembly/net_changes.py",
        "self._count(table, key, row, lsn, -1)", "pass", _SCHEDULES,
    ),
    Mutant(
        "keep netted rows over a truncation", "connectors/postgres/assembly/transaction_changes.py",
        "        self._netting.forget(table.schema.oid)\n", "", _SCHEDULES,
    ),
    Mutant(
        "do not look where netting is unclear", "connectors/postgres/assembly/net_changes.py",
        "unclear=len(came) > 1 or len(went) > 1", "unclear=False", _ASSEMBLE,
    ),
    Mutant(
        "truncate one partition only", "connectors/postgres/assembly/transaction_changes.py",
        "range(table.lane, table.lane + table.lane_count)", "range(table.lane, table.lane + 1)", _ASSEMBLE,
    ),
    Mutant(
        "write no tombstone", "connectors/postgres/assembly/assembler.py",
        "if route.deletes:", "if False:", _ASSEMBLE,
    ),
    Mutant(
        "leave the old key of a moved row", "connectors/postgres/assembly/transaction_changes.py",
        "        self._remove(table, lsn, seq, old_key, old, [(NEW_KEY, new_key)])\n", "", _SCHEDULES,
    ),
    Mutant(
        "count no number for a table that is not captured", "connectors/postgres/assembly/assembler.py",
        "seq = self._tx.take(numbers(message))", "seq = self._tx.take(numbers(message) if table else 0)", _ASSEMBLE,
    ),
    Mutant(
        "set a table aside before that is noted", "connectors/postgres/assembly/assembler.py",
        "            self._asides.set_aside(table, why, self._tx.lsn if oldest is None else oldest, self._tx.xid)\n"
        "            self._unread.leave(table)\n"
        "            for shape in self._compiled.shapes_of(table):\n"
        "                self._outlet.leave(shape.lanes)\n"
        "                self._changes.leave(shape)\n"
        "                if self._tables.get(shape.schema.oid) is shape:\n"
        "                    self._follow(shape.schema.oid, None)\n",
        "            self._unread.leave(table)\n"
        "            for shape in self._compiled.shapes_of(table):\n"
        "                self._outlet.leave(shape.lanes)\n"
        "                self._changes.leave(shape)\n"
        "                if self._tables.get(shape.schema.oid) is shape:\n"
        "                    self._follow(shape.schema.oid, None)\n"
        "            self._asides.set_aside(table, why, self._tx.lsn if oldest is None else oldest, self._tx.xid)\n",
        _ASSEMBLE,
    ),
    Mutant(
        "say that a table lacks changes from the last transaction on", "connectors/postgres/assembly/assembler.py",
        "self._tx.lsn if oldest is None else oldest", "self._tx.lsn", _ASSEMBLE,
    ),
    Mutant(
        "let what is on its way of a table that is set aside through", "connectors/postgres/assembly/waiting_tables.py",
        "        self.left.update(lanes)\n", "", _ASSEMBLE,
    ),
    Mutant(
        "drop what comes of a table that is followed again", "connectors/postgres/assembly/assembler.py",
        "        self._outlet.arrived()\n        relation, xid = ", "        relation, xid = ", _ASSEMBLE,
    ),
    Mutant(
        "keep files of waiting records that were read out", "connectors/postgres/assembly/spill_files.py",
        "            self._segments.popleft().close()\n        elif", "            pass\n        elif",
        "tests/unit/connectors/postgres/assembly/test_spilled.py",
    ),
    Mutant(
        "let a record overtake those of its table that wait", "connectors/postgres/assembly/transaction.py",
        "return self._sorted if self._waiting else", "return", _SCHEDULES,
    ),
    Mutant(
        "count an update with an old row as one record", "connectors/postgres/protocol/messages.py",
        "return 1 if change.key is None and change.old is None else 3", "return 1", _ASSEMBLE,
    ),
    Mutant(
        "let what one table leaves to settle move another's positions",
        "connectors/postgres/assembly/transaction_changes.py",
        "self._settled.get(table.lane, 0)", "sum(self._settled.values())", _ASSEMBLE,
    ),
    Mutant(
        "write an unchanged value as null", "connectors/postgres/assembly/pending_records.py",
        "known = selected[i] if", "known = None if", _SCHEDULES,
    ),
    Mutant(
        "let records overtake one that waits for its values", "connectors/postgres/assembly/transaction.py",
        "            self._held.wait(pending)\n            self.emit = self._next()\n",
        "            self._held.wait(pending)\n", _SCHEDULES,
    ),
    Mutant(
        "remember a wide row beyond its transaction", "connectors/postgres/assembly/transaction_changes.py",
        "        self._recent.clear()\n", "", _ASSEMBLE,
    ),
    Mutant(
        "read a value past the end of its message", "connectors/postgres/protocol/pgoutput.py",
        "            if stop > end:\n", "            if False:\n",
        "tests/unit/connectors/postgres/protocol/test_pgoutput.py",
    ),
    Mutant(
        "leave bytes of a message over", "connectors/postgres/protocol/pgoutput.py",
        "    reader.end()\n", "", "tests/unit/connectors/postgres/protocol/test_pgoutput.py",
    ),
    Mutant(
        "match text that nulls may follow", "connectors/postgres/encoding/compiled.py",
        'walked=tier == "loose" and form.anything', "walked=False",
        "tests/unit/connectors/postgres/encoding/test_row_steps.py",
    ),
    Mutant(
        "match a text key that nulls follow", "connectors/postgres/encoding/compiled.py",
        "if whole or not any(", "if whole or any(", "tests/unit/connectors/postgres/encoding/test_row_steps.py",
    ),
    Mutant(
        "take a row that was cut short for a whole one", "connectors/postgres/encoding/row_reading.py",
        "if at != len(frame): break", "pass", "tests/unit/connectors/postgres/encoding/test_encoder.py",
    ),
    Mutant(
        "believe a value's length", "connectors/postgres/encoding/row_reading.py",
        "        if sized:\n", "        if not sized:\n", "tests/unit/connectors/postgres tests/faults/test_rows.py",
    ),
    Mutant(
        "tell the server what was received", "connectors/postgres/protocol/frames.py",
        "flushed=self.position", "flushed=written", "tests/unit/connectors/postgres/protocol/test_frames.py",
    ),
    Mutant(
        "settle for what commits while a cut waits", "connectors/postgres/server/cut_reader.py",
        '            settled = self._number("insert_lsn")\n            certain = self._wait_for_visibility()\n',
        '            certain = self._wait_for_visibility()\n            settled = self._number("insert_lsn")\n',
        "tests/integration/catalog/test_cut.py",
    ),
    Mutant(
        "let a slot be ahead of the log", "connectors/postgres/server/slot.py",
        "slot.confirmed_flush_lsn > position:", "slot.confirmed_flush_lsn > position + 2**63:",
        "tests/integration/capture/test_refusals.py -k h81",
    ),
    Mutant(
        "re-select what is not visible yet", "connectors/postgres/server/reselect.py",
        "if not all(seen.sees(xid) for xid in xids):", "if False:", "tests/integration/catalog/test_reselect.py",
    ),
    Mutant(
        "take a refused key for gone before its commit is visible", "connectors/postgres/server/reselect.py",
        "return all(", "return True or all(", "tests/integration/catalog/test_reselect.py",
    ),
    Mutant(
        "let row security hide rows", "connectors/postgres/server/connections.py",
        '"row_security": "off"', '"row_security": "on"', "tests/integration/snapshot/test_refusals.py -k h27",
    ),
    Mutant(
        "let the role's timeouts end a session", "connectors/postgres/server/connections.py",
        '        "idle_in_transaction_session_timeout": "0",\n', "",
        "tests/integration/snapshot/test_refusals.py -k h92",
    ),
    Mutant(
        "take a timeline's number for its name", "connectors/postgres/server/failover.py",
        "        shared = min(our_end, end)\n", "        shared = max(our_end, end)\n",
        "tests/unit/connectors/postgres/server/test_failover.py",
    ),
    Mutant(
        "take a slot that no promotion proves for the pipeline's", "connectors/postgres/server/failover.py",
        "(slot.confirmed_flush_lsn or 0) > begun", "True", "tests/unit/connectors/postgres/server/test_failover.py",
    ),
    Mutant(
        "wait for an answer without asking for a stop", "connectors/postgres/server/connections.py",
        "                    turn()\n", "", "tests/integration/catalog/test_watched.py",
    ),
    Mutant(
        "go on with a promoted standby that misses what the log holds", "connectors/postgres/server/failover.py",
        "lsn > self.switch_lsn", "lsn > self.switch_lsn + 2**32",
        "tests/unit/connectors/postgres/server/test_failover.py",
    ),
    Mutant(
        "list partitions by a function that locks them", "connectors/postgres/server/queries.sql",
        "join pg_inherits i on i.inhparent = t.oid and not i.inhdetachpending",
        "join lateral (select relid as inhrelid from pg_partition_tree(t.oid) where level = 1) i on true",
        "tests/integration/catalog/test_looks.py -k h95",
    ),
    Mutant(
        "look for a table by what stands before its first dot", "connectors/postgres/server/table_selection.py",
        "any(Pattern.parse(text).names(table) for text in tables)",
        "any(Pattern.parse(text).takes(TableName(*table.split('.', 1))) for text in tables)",
        "tests/unit/connectors/postgres/server/test_selection.py",
    ),
    Mutant(
        "let a table that is gone hide the others", "connectors/postgres/server/table_selection.py",
        "            missing(error)", "            raise error",
        "tests/unit/connectors/postgres/server/test_selection.py",
    ),
    Mutant(
        "let two captures in", "connectors/postgres/server/slot.py",
        "return bool(row and row[0])", "return True", "tests/integration/capture/test_refusals.py -k h14",
    ),
    Mutant(
        "let progress pass what cannot be read yet", "connectors/postgres/assembly/assembler.py",
        "return _oldest(self._waiting.oldest, self._unread.oldest)", "return self._waiting.oldest",
        "tests/unit/connectors/postgres/assembly/test_unread.py",
    ),
    Mutant(
        "take rows as they come while older ones are kept", "connectors/postgres/assembly/undecoded_tables.py",
        "return not group.raw and group.awaited is None", "return group.awaited is None",
        "tests/unit/connectors/postgres/assembly/test_unread.py",
    ),
    Mutant(
        "decode what was kept in the transaction that is open", "connectors/postgres/assembly/undecoded_tables.py",
        "            group.since_lsn = group.stamp.commit_lsn\n            self._tx.visit(group.stamp)\n",
        "            group.since_lsn = group.stamp.commit_lsn\n",
        "tests/unit/connectors/postgres/assembly/test_unread.py",
    ),
    Mutant(
        "leave netted rows of a table that waits with the others", "connectors/postgres/assembly/assembler.py",
        "self._changes.hand_over(oid, self._unread.begin(relation, xid))", "self._unread.begin(relation, xid)",
        "tests/unit/connectors/postgres/assembly/test_unread.py",
    ),
    Mutant(
        "drop changes under a key that cannot be followed", "connectors/postgres/assembly/assembler.py",
        "            self._set_aside(self._refused.pop(message.relation_oid))", "            pass",
        "tests/unit/connectors/postgres/assembly/test_aside.py",
    ),
    Mutant(
        "compile for each table what no change of it needs", "connectors/postgres/assembly/routes.py",
        "        self._parts: Templates | None = None\n",
        "        self._parts: Templates | None = None\n        getattr(table.encoder.rows, form)\n",
        "tests/unit/connectors/postgres/assembly/test_routes.py",
    ),
    Mutant(
        "say nothing of a value that was selected again", "connectors/postgres/assembly/pending_records.py",
        "        elif selected:\n", "        elif False:\n",
        "tests/unit/connectors/postgres/assembly/test_held.py -k v25",
    ),
    Mutant(
        "say nothing of a row that netting looked up", "connectors/postgres/assembly/pending_records.py",
        "tail = read_at(tail, answer.seen_lsn)", "pass", "tests/unit/connectors/postgres/assembly/test_netting.py",
    ),
    Mutant(
        "take a token before the commit that it is to cover", "connectors/postgres/server/connection_token.py",
        "if opened and not _commits_itself(connection):", "if False:",
        "tests/unit/connectors/postgres/server/test_connection_token.py",
    ),
    Mutant(
        "take a token before its commit where the driver says nothing", "connectors/postgres/server/stream.sql",
        "pg_catalog.pg_current_xact_id_if_assigned() is not null", "false",
        "tests/integration/catalog/test_tokens.py -k h267",
    ),
    Mutant(
        "take a token behind the header of the next page", "connectors/postgres/server/stream.sql",
        "within.page = 24 and within.segment <> 24", "false",
        "tests/integration/catalog/test_tokens.py -k h268",
    ),
)  # fmt: skip
