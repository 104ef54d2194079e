"""Rules of ``cdc``: the loop, the features and what they note."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_SCHEDULES = "tests/faults/test_schedules.py"
_SPARK = "tests/unit/spark"
_DROP = "tests/unit/cdc/operate"
_HANDOVER = "tests/unit/cdc/operate"
_REBUILD = "tests/unit/cdc/operate"

MUTANTS = (
    Mutant(
        "answer who asked for documents before they are out", "cdc/views/view_runner.py",
        "if all(left.values()):", "if left is not None:", "tests/unit/cdc/views/test_asked_keys.py",
    ),
    Mutant(
        "take up the same wish for documents with each cut", "cdc/views/view_runner.py",
        "state.note(asked=asked.id)", 'state.note(asked="")', "tests/unit/cdc/views/test_asked_keys.py",
    ),
    Mutant(
        "write a document into a store that the view's topic has otherwise", "cdc/verification/repair.py",
        "if row == rows.get(key):", "if row is not None:", "tests/unit/cdc/verification/test_view_repair.py",
    ),
    Mutant(
        "keep a generation again that is in use no more", "cdc/operate/rebuild.py",
        "        if run.step == Step.KEEPING:\n", "        if run.step:\n", _REBUILD,
    ),
    Mutant(
        "switch before the switch is noted", "cdc/operate/rebuild.py",
        "return self._note(run.at(Step.SWITCHING))", "return run.at(Step.SWITCHING)", _REBUILD,
    ),
    Mutant(
        "remove the generation in use with those that were kept", "cdc/operate/rebuild.py",
        "in_use = {generations.in_use()} if self._separate else set()", "in_use: set[int] = set()", _REBUILD,
    ),
    Mutant(
        "let the new generation's letters wait for nobody", "cdc/operate/rebuild.py",
        "return [*fresh, *(", "return [*(", _REBUILD,
    ),
    Mutant(
        "believe a watermark in a generation that has read less", "cdc/operate/rebuild.py",
        "return _read(new, old, ends) and _claim(new) >=", "return _claim(new) >=", _REBUILD,
    ),
    Mutant(
        "wait for a claim that the log does not hold", "cdc/operate/rebuild.py",
        "return level_with_log(now.new, now.old, now.ends, self._ports.written())", "return False", _REBUILD,
    ),
    Mutant(
        "take a true claim for one beyond the log", "cdc/operate/rebuild.py",
        "return _claim(old) > reached and _claim(new)", "return _claim(new)", _REBUILD,
    ),
    Mutant(
        "believe the first look at topics that still grow", "cdc/operate/handover.py",
        "            if now == ends:\n", "            if now:\n", _HANDOVER,
    ),
    Mutant(
        "carry an order out again that changed nothing", "cdc/wire/dead_letter.py",
        "if letter.why in (Why.RELEASED, Why.HELD):", "if letter.why is Why.RELEASED:",
        "tests/unit/cdc/wire/test_orders.py",
    ),
    Mutant(
        "leave an order about nothing unanswered", "cdc/wire/dead_letter.py",
        'answers.append(_answer(queue.order, Why.HELD, "nothing waits under this key any more", identity))', "pass",
        "tests/unit/cdc/wire/test_orders.py",
    ),
    Mutant(
        "acknowledge what no progress record says", "cdc/capture/capture_loop.py",
        "session.stream.acknowledge(advance.position)", "session.stream.acknowledge(advance.durable + 8)", _SCHEDULES,
    ),
    Mutant(
        "take a progress record for held when it is written", "cdc/capture/advance.py",
        "self._writing = (group, self.durable)", "self._writing, self.position = (group, self.durable), self.durable",
        _SCHEDULES,
    ),
    Mutant(
        "let a keepalive pass what the broker owes", "cdc/capture/advance.py",
        "        self._reach(wal_end, group)", "        self.durable = max(self.durable, wal_end)", _SCHEDULES,
    ),
    Mutant(
        "believe a keepalive inside a transaction", "cdc/capture/capture_loop.py",
        "if wal_end is not None and not session.assembler.in_transaction:", "if wal_end is not None:", _SCHEDULES,
    ),
    Mutant(
        "do not say which partitions are ahead", "cdc/capture/capture_loop.py",
        "ahead=session.log.ahead(lsn)", "ahead={}", _SCHEDULES,
    ),
    Mutant(
        "let progress pass a record that waits", "cdc/capture/advance.py",
        "self.durable = max(self.durable, min(self._stored, self._floor))", "self.durable = self._stored", _SCHEDULES,
    ),
    Mutant(
        "take what waited for stored once it was handed over", "cdc/capture/advance.py",
        "self._floors.append((group, found))", "self._floor = found", _SCHEDULES,
    ),
    Mutant(
        "leave out of the progress record what it does not speak of", "cdc/capture/capture_loop.py",
        "            aside=session.asides.lacking if session.asides is not None else {},\n", "",
        "tests/unit/connectors/session/test_aside_rounds.py",
    ),
    Mutant(
        "write what was dropped of a table behind its reading", "cdc/record/tables_aside.py",
        "            found[one.table] = max(until, found.get(one.table, until))\n", "            pass\n",
        "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "take a reading from before for the one that is due", "cdc/record/tables_aside.py",
        "floor_lsn >= self.from_lsn & ~COMMIT_ALIGNMENT", "True", "tests/unit/connectors/session/test_asides.py",
    ),
    Mutant(
        "hold windows of all tables back with one that waits", "cdc/capture/windows.py",
        "max(moment.position, moment.stored) if moment.waiting else moment.position", "moment.position",
        "tests/unit/cdc/capture/test_windows_waiting.py",
    ),
    Mutant(
        "write a window's rows before what waits of its table", "cdc/capture/windows.py",
        "if window.overrun or window.lane in moment.waiting:", "if window.overrun:",
        "tests/unit/cdc/capture/test_windows_waiting.py",
    ),
    Mutant(
        "grant a window above what waits of its table", "cdc/capture/windows.py",
        "window.overrun = window.lane in moment.waiting", "pass", "tests/unit/cdc/capture/test_windows_waiting.py",
    ),
    Mutant(
        "try each place of each star", "cdc/record/topic_names.py",
        "(?>.*?{part})", ".*{part}", "tests/unit/connectors/postgres/server/test_selection.py",
    ),
    Mutant(
        "repair at the fence", "cdc/verification/repair.py",
        "settled = certain_cut(source, clock).settled", "settled = certain_cut(source, clock).fence",
        "tests/unit/cdc/verification/test_repair.py",
    ),
    Mutant(
        "take two equal rows under a key for one", "cdc/verification/spool.py",
        "    for key in twice - found.keys():", "    for key in twice - twice:",
        "tests/unit/cdc/verification/test_rounds.py",
    ),
    Mutant(
        "take a key that a walk met again for two rows", "cdc/verification/passes.py",
        "several = one is not None and not one.pos", "several = True",
        "tests/unit/cdc/verification/test_rounds.py",
    ),
    Mutant(
        "call a position of the future undecided", "cdc/verification/spool.py",
        "if ceiling is not None and pos is not None and pos > ceiling:", "if ceiling == pos and pos is None:",
        "tests/unit/cdc/verification/test_rounds.py",
    ),
    Mutant(
        "bury a letter at every replay", "cdc/wire/dead_letter.py",
        " for letter in letters if not self._holds(letter)}", " for letter in letters}", _SPARK,
    ),
    Mutant(
        "write an older window's row behind a newer one's", "cdc/capture/windows.py",
        "                    self._outdate(window, records)\n", "", "tests/unit/cdc/capture/test_windows_beside.py",
    ),
    Mutant(
        "let a command count for a newer request", "cdc/record/state.py",
        "if command is None or command.serial != request.serial:", "if command is None:",
        "tests/unit/snapshot/later/test_state_view.py",
    ),
    Mutant(
        "take any column for a captured one", "cdc/operate/snapshot_requests.py",
        "    if unknown:", "    if False:", "tests/unit/snapshot/later/test_condition_sql.py",
    ),
    Mutant(
        "let a condition end behind its first part", "cdc/record/row_condition.py",
        "    parser.end()\n", "", "tests/unit/cdc/record/test_condition.py",
    ),
    Mutant(
        "keep what is streamed from the gate", "cdc/capture/capture_loop.py",
        "session.windows.gate.streamed(commit.xid for commit in commits)", "pass",
        "tests/integration/capture/test_later_gate.py -k read_before",
    ),
    Mutant(
        "try again at once whenever a session opened", "cdc/capture/capture_loop.py",
        "capture is not None and capture.progressed", "capture is not None", "tests/unit/cdc/capture/test_capture.py",
    ),
    Mutant(
        "let a foreign position count as ours", "cdc/capture/late_record_rules.py",
        "self._top < pos <= self._most_text", "self._top < pos", "tests/unit/cdc/capture/test_stale.py",
    ),
    Mutant(
        "read a document of another format", "cdc/record/documents.py",
        "if found != own:", "if False:", "tests/unit/cdc/record/test_stored.py",
    ),
    Mutant(
        "take a member for what another version meant by it", "cdc/record/documents.py",
        "return value if isinstance(value, kind) else _wrong(name)", "return value",
        "tests/unit/cdc/record/test_stored.py",
    ),
    Mutant(
        "take a slot for a stranger's when its owner was not read", "cdc/checks/postgres.py",
        "    if isinstance(known, Unknown):\n        yield _slot_of_somebody(slot, settings)\n        return\n",
        "    if isinstance(known, Unknown):\n        known = None\n",
        "tests/unit/cdc/checks/test_postgres.py",
    ),
    Mutant(
        "drop any slot of the pipeline's name", "cdc/record/server_facts.py",
        "return Owner.UNKNOWN", "return Owner.OURS", "tests/unit/cdc/checks/test_postgres.py -k whose",
    ),
    Mutant(
        "hide a secret inside other words", "cdc/process/untrusted_text.py",
        'r"(?<!\\w)" if word[0].isalnum() else ""', '""', "tests/unit/cdc/process/test_foreign.py",
    ),
    Mutant(
        "take the first @ of a URL for the end of its password", "cdc/process/untrusted_text.py",
        'behind.rpartition("@")', 'behind.partition("@")', "tests/unit/cdc/process/test_foreign.py",
    ),
    Mutant(
        "show slot figures that nobody has looked at", "cdc/figures/capture_server.py",
        "slot is not None and f.knows_server(now_s)", "slot is not None", "tests/unit/cdc/figures/test_metrics.py",
    ),
    Mutant(
        "show a lag by a server that does not answer", "cdc/figures/capture_metrics.py",
        "if not (self.flows(now_s) and self.knows_server(now_s))", "if not self.flows(now_s)",
        "tests/unit/cdc/figures/test_metrics.py",
    ),
    Mutant(
        "forget a transaction of which more is to come", "cdc/figures/capture_metrics.py",
        ", age_s(now_us, self.open_commit_us)]", "]", "tests/unit/cdc/figures/test_metrics.py",
    ),
    Mutant(
        "take a figure that is not known for one that is", "cdc/figures/http_server.py",
        "if value is None or self._is_unknown(figure, labels):", "if value is None:",
        "tests/unit/spark/test_metrics.py",
    ),
    Mutant(
        "log in to another database as to Postgres", "cdc/wiring/__init__.py",
        "    require_postgres(settings, application_name)\n", "",
        "tests/unit/connectors/debezium/test_config.py -k h130",
    ),
    Mutant(
        "leave a sink's section unread whose kind there is not", "cdc/settings/sink_settings.py",
        "faults.append(unknown_kind(name, kind))", "pass", "tests/unit/cdc/settings/test_inputs.py",
    ),
    Mutant(
        "show a section that nobody checked", "cdc/settings/sink_settings.py",
        'yield "kind", self.kind', "yield from super().__repr_args__()", "tests/unit/sinks/contract/test_kinds.py",
    ),
    Mutant(
        "check a sink's settings when the sink is opened only", "sinks/contract/kinds.py",
        "return load(path, environment, InstalledKinds())", "return load(path, environment)",
        "tests/unit/cdc/settings/test_inputs.py",
    ),
    Mutant(
        "delete the state topic with those that it names", "cdc/operate/drop.py",
        "else set()) - {own}), [own]", "else set()) | {own}), []", _DROP,
    ),
    Mutant(
        "drop a slot that nobody was asked about", "cdc/operate/drop.py",
        "                self._require_own(source)\n", "                pass\n", _DROP,
    ),
    Mutant(
        "keep the publication's end though the slot stayed", "cdc/operate/drop.py",
        "                dropped = slot is not None and source.drop_slot()\n",
        "            with source.transaction():\n                dropped = slot is not None and source.drop_slot()\n",
        _DROP,
    ),
    Mutant(
        "believe one broker that topics are gone, and delete (H589)", "cdc/operate/drop.py",
        "if not self._gone and not self._ports.gone(self._own):", "if False:", _DROP,
    ),
    Mutant(
        "take a pipeline's slot for somebody else's where a broker lags (H591)", "connectors/operate/init.py",
        "    if begun.state not in present and (", "    if False and (",
        "tests/unit/connectors/operate/test_prepare.py",
    ),
    Mutant(
        "have a first init doubt that there is no state (H591)", "connectors/operate/init.py",
        "(begun.progress in present or begun.slot())", "True", "tests/unit/connectors/operate/test_prepare.py",
    ),
    Mutant(
        "note a first run over what was noted (H591)", "connectors/operate/init.py",
        "    if known is None and begun.state not in made and", "    if False and",
        "tests/integration/snapshot/test_slots.py -k h591",
    ),
    Mutant(
        "listen for answers once the orders are written", "cdc/operate/dead_letter_orders.py",
        "        with closing(self._ports.follow()) as feed:\n"
        "            self._ports.letters.write(order(letter, why, one) for one, letter in unanswered.items())\n",
        "        self._ports.letters.write(order(letter, why, one) for one, letter in unanswered.items())\n"
        "        with closing(self._ports.follow()) as feed:\n", "tests/unit/cdc/operate",
    ),
    Mutant(
        "call a pipeline well that captures nothing yet", "cdc/status/rules.py",
        'facts.source is not None and shown.snapshot == "none"', "False", "tests/unit/cdc/status/test_rules.py",
    ),
    Mutant(
        "believe a progress record with an offset below zero", "cdc/record/progress.py",
        "and lowest >= 0)", ")", "tests/unit/cdc/record/test_progress.py",
    ),
    Mutant(
        "believe that no position is one ahead of progress", "cdc/record/progress.py",
        "if not all(_POSITION.fullmatch(text) for text in ahead):", "if False:",
        "tests/unit/cdc/record/test_progress.py",
    ),
    Mutant(
        "ask a store for one key after the other", "cdc/verification/passes.py",
        "    if isinstance(reader, LooksUpMany):\n", "    if False:\n", "tests/unit/cdc/verification/test_rounds.py",
    ),
    Mutant(
        "let cdc check pass over a table that is set aside", "cdc/checks/preflight.py",
        "            yield _judged(one, read)\n", "            pass\n", "tests/unit/cdc/checks/test_following.py",
    ),
    Mutant(
        "keep a place beyond the end of a topic", "cdc/record/progress.py",
        "min(boundary, end) for boundary", "boundary for boundary", "tests/unit/cdc/record/test_epochs.py",
    ),
    Mutant(
        "take a watermark that names no server for the token's", "cdc/record/tokens.py",
        "return TokenRelation.UNNAMED", "return TokenRelation.SHOWN",
        "tests/unit/cdc/record/test_tokens.py",
    ),
    Mutant(
        "take a commit that a promotion left behind for one that is kept", "cdc/record/source_lineage.py",
        "LsnRelation.SAME if lsn <= left[timeline] else LsnRelation.LOST", "LsnRelation.SAME",
        "tests/unit/cdc/record/test_tokens.py",
    ),
    Mutant(
        "take a timeline that nobody noted for one that is kept", "cdc/record/source_lineage.py",
        "return LsnRelation.UNKNOWN if timeline < oldest else LsnRelation.LOST", "return LsnRelation.SAME",
        "tests/unit/cdc/record/test_tokens.py",
    ),
    Mutant(
        "answer the first of two values of a parameter", "cdc/figures/http_server.py",
        "if len(asked) < len(pairs):", "if False:",
        "tests/unit/spark/test_wait_page.py",
    ),
    Mutant(
        "wait for a signal's handler without a limit (H554)", "cdc/process/clock.py",
        "_LOOK_EVERY_S = 0.5", "_LOOK_EVERY_S = 1e6", "tests/unit/cdc/process/test_signal_event.py",
    ),
)  # fmt: skip
