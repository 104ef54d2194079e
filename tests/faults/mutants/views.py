"""Rules of views, ``cdc/views``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_KEEPER = "tests/unit/cdc/views/test_keeper.py"
_AHEAD = "tests/unit/cdc/views/test_ahead.py"
_ROWS = "tests/unit/cdc/views/test_row_changes.py"
_HELD = "tests/unit/cdc/views/test_held_tables.py"
_AWAITED = "tests/unit/cdc/views/test_awaited_tables.py"
_IDENTITY = "tests/unit/cdc/views/test_view_identity.py"
_DOCUMENTS = "tests/integration/views/test_documents.py "
_GENERATED = "tests/integration/views/test_generated.py -k generated"

_NUMBERED = "tests/unit/cdc/views/test_numbered_above.py"
_POSTS = "tests/unit/connectors/views/test_view_posts.py"
_SESSIONS = "tests/integration/views/test_sessions.py"
_GENERATIONS = "tests/unit/cdc/views/test_view_generations.py"

MUTANTS = (
    Mutant(
        "say nothing of sketches in a view (E12)", "cdc/views/calls.py", "if _SKETCH.match(name):", "if False:",
        "tests/unit/cdc/views/test_refused_views.py -k e12",
    ),
    Mutant(
        "show a row whatever LSN it was read at", "cdc/views/row_changes.py",
        "if change.ripe <= fence:", "if True:", _ROWS,
    ),
    Mutant(
        "show a value that was selected again at once", "cdc/views/row_changes.py",
        "KEPT if i in change.reselected else value for", "value for", _ROWS,
    ),
    Mutant(
        "take a stored row for that of a fence whatever the cleaner took", "cdc/views/row_changes.py",
        "if change.sure and not Position.parse(change.pos).streamed:",
        "if not Position.parse(change.pos).streamed:", _ROWS,
    ),
    Mutant(
        "fill an old record's gap from the stored row", "cdc/views/row_changes.py",
        "if change.sure or change.row is None or KEPT not in change.row:", "if True:", _ROWS,
    ),
    Mutant(
        "fill a gap from a value that is not known", "cdc/views/row_changes.py",
        "(older is None or i in lost)", "older is None", _ROWS,
    ),
    Mutant(
        "keep what waits below a newer change", "cdc/views/embedded_state.py",
        "self._unseen.replaced(table, changes)", "pass", _ROWS,
    ),
    Mutant(
        "keep what waits below a floor", "cdc/views/embedded_state.py",
        "        self._unseen.below(table, floor)\n", "", _ROWS,
    ),
    Mutant(
        "forget the documents of a value that became known", "cdc/views/embedded_state.py",
        "or bool(self.lost or self.lacks)", "", _ROWS,
    ),
    Mutant(
        "sweep before the sweep's own LSN", "cdc/views/record_changes.py", "if ripe > self.fence:", "if False:", _AHEAD,
    ),
    Mutant(
        "claim an LSN beside values that are not known", "cdc/views/view_state.py",
        'others += " UNION ALL SELECT epoch, lsn FROM lost"', "pass", _ROWS,
    ),
    Mutant(
        "pass over rows that capture put aside", "cdc/views/view_runner.py",
        "if (lost := self._changes.lost(letter)) is not None", "if False and (lost := None)", _AHEAD,
    ),
    Mutant(
        "publish beside a table that is set aside", "cdc/views/view_runner.py",
        " and not reached.held and not self._unswept()", " and not self._unswept()", _AHEAD,
    ),
    Mutant(
        "let a view go on before it has come to a reading's rows", "cdc/views/runner_rules.py",
        'if held or unknown else ""', 'if held else ""', _HELD,
    ),
    Mutant(
        "publish what waits in the order in which it came", "cdc/views/view_state.py",
        "if len(found) == most:", "if False:", "tests/unit/cdc/views/test_fan_out.py",
    ),
    Mutant(
        "let the user's function change a document's key", "cdc/views/post_functions.py",
        "if [made[name] for name in self._key] != key:", "if False:", "tests/unit/cdc/views/test_post_functions.py",
    ),
    Mutant(
        "take a changed function for the same view", "connectors/views/view_planning.py",
        "blake2b(source + name.encode(), digest_size=16)", "blake2b(name.partition(':')[2].encode(), digest_size=16)",
        "tests/unit/connectors/views/test_view_posts.py",
    ),
    Mutant(
        "carry any type into a view as it stands on the wire", "cdc/views/sql_types.py",
        "if orjson.loads(family.example.readable) != family.example.text", "if False",
        "tests/unit/cdc/views/test_refused_views.py",
    ),
    Mutant(
        "read a view's state whatever its format", "cdc/views/state_reach.py",
        "members = read_members(text, _ABOUT, _FORMAT)", "members = orjson.loads(text)",
        "tests/unit/cdc/record/test_stored.py",
    ),
    Mutant(
        "take a cut for whole whatever its progress record's age", "cdc/views/runner_rules.py",
        "min(log_input.progress_ms, cut.beyond_ms or log_input.progress_ms)",
        "now_ns // 1_000_000", _KEEPER,
    ),
    Mutant(
        "pass over the age of what lies beyond a fence", "cdc/views/runner_rules.py",
        "min(log_input.progress_ms, cut.beyond_ms or log_input.progress_ms)",
        "log_input.progress_ms", _KEEPER,
    ),
    Mutant(
        "publish a later generation where a former one has published", "cdc/views/runner_rules.py",
        "others = BEFORE_ALL if above == NEVER else above", "others = BEFORE_ALL", _GENERATIONS,
    ),
    Mutant(
        "sweep for a later generation where its state was whole", "cdc/views/runner_rules.py",
        '"sweep": reached.sweep and max(reached.sweep, others),', '"sweep": reached.sweep,', _GENERATIONS,
    ),
    Mutant(
        "number what a state publishes as if none had before", "cdc/views/log_cut.py",
        "return met if met is not None and (met.epoch, met.commit_lsn) == self else self.floor()",
        "return self.floor()", _NUMBERED,
    ),
    Mutant(
        "number what another plan gives where the former one did", "cdc/views/runner_rules.py",
        "own._replace(tx_seq=own.tx_seq + NUMBERS)", "own", _NUMBERED,
    ),
    Mutant(
        "end the application where a view's former topic is gone", "spark/queries/log_watch.py",
        "if error.retry is not Retry.NEVER or not self._topics_changed():", "if True:",
        "tests/unit/spark/test_heads.py",
    ),
    Mutant(
        "sweep at the cut that made a state whole", "cdc/views/runner_rules.py",
        '"sweep": max(cut.fence, reached.published) if', '"sweep": cut.fence if', _GENERATIONS,
    ),
    Mutant(
        "look for documents behind a change only", "cdc/views/embedded_state.py",
        "concerned |= self._roots(table, old)", "pass", _GENERATED,
    ),
    Mutant(
        "look for documents before a change only", "cdc/views/embedded_state.py",
        "concerned |= self._roots(table, new)", "pass", _GENERATED,
    ),
    Mutant(
        "see a table where it stands first in a view", "cdc/views/embedded_state.py",
        "for occurrence in self._plan.of_table(table):",
        "for occurrence in self._plan.of_table(table)[:1]:", _GENERATED,
    ),
    Mutant(
        "pass over the second condition of a left join", "cdc/views/join_order.py",
        "right = self._group([item.right], list(item.on), [], inner)",
        "right = self._group([item.right], list(item.on)[:1], [], inner)", _GENERATED,
    ),
    Mutant(
        "pass over HAVING in a subquery", "cdc/views/compiling.py",
        "for condition in query.having:", "for condition in ():", _GENERATED,
    ),
    Mutant(
        "write a NULL in a view's key as text", "cdc/wire/plain.py",
        'NULL_IN_KEY = "%null"', 'NULL_IN_KEY = "null"', "tests/contract/test_lookups.py -k v13 -k memory",
    ),
    Mutant(
        "take a NULL for no key of a view", "cdc/wire/plain.py",
        "null = NULL_IN_KEY if schema.table.schema in (VIEW_SCHEMA, STREAM_SCHEMA) else None", "null = None",
        "tests/unit/cdc/wire/test_plain.py",
    ),
    Mutant(
        "take a NULL for a key of any table", "cdc/wire/plain.py",
        "null = NULL_IN_KEY if schema.table.schema in (VIEW_SCHEMA, STREAM_SCHEMA) else None", "null = NULL_IN_KEY",
        "tests/unit/cdc/wire/test_plain.py",
    ),
    Mutant(
        "look up a NULL in a view's key as if it were equal", "connectors/postgres/server/cut_reader.py",
        '"{} is not distinct from {}"', '"{} = {}"', "tests/unit/connectors/postgres/server/test_cut.py -k v13",
    ),
    Mutant(
        "leave the one row out where there are no rows", "cdc/views/group_state.py",
        "if self.always and not rows and names:", "if False:", _KEEPER,
    ),
    Mutant(
        "keep what follows from a group's key as it was at first", "cdc/views/group_state.py",
        "return value if sign > 0 else kept", "return kept or value", _DOCUMENTS + "-k follow",
    ),
    Mutant(
        "leave a column out of the key that does not follow from it", "cdc/views/group_plan.py",
        "if base_column(by) not in known:", "if False:", "tests/unit/cdc/views/test_refused_views.py",
    ),
    Mutant(
        "order the rows of a group ascending alone", "cdc/views/stored_values.py",
        "written.translate(_INVERTED) if one.descending else written", "written", _DOCUMENTS + "-k first",
    ),
    Mutant(
        "let a text of an order run into what stands behind it", "cdc/views/stored_values.py",
        ' + b"\\x00\\x00"', "", "cdc/views/stored_values.py --doctest-modules",
    ),
    Mutant(
        "take the rows of a group in any order", "cdc/views/group_state.py",
        'f" ORDER BY {order}', 'f" ORDER BY -part, key', _DOCUMENTS + "-k first",
    ),
    Mutant(
        "pass over FILTER of what is listed", "cdc/views/group_state.py",
        "AND {self.order} IS NOT NULL", "", _DOCUMENTS + "-k first",
    ),
    Mutant(
        "pass over WHERE of a query in FROM", "cdc/views/selecting.py",
        "reach.filters += query.where", "pass", _DOCUMENTS + "-k query",
    ),
    Mutant(
        "take a query in FROM apart whatever it holds", "cdc/views/terms.py",
        "return bool(self.tables) and not (self.grouped or counted)", "return bool(self.tables)",
        "tests/unit/cdc/views/test_refused_views.py",
    ),
    Mutant(
        "leave a row in groups that it has left", "cdc/views/group_state.py",
        "gone += [(name, part) for part in range(len(after), len(before))]", "pass", _KEEPER,
    ),
    Mutant(
        "take one row of a series alone", "cdc/views/group_plan.py",
        'code.add("return out")', 'code.add("return out[:1]")', _KEEPER,
    ),
    Mutant(
        "let a series of times end before its last", "cdc/views/date_functions.py",
        "while begin <= end if span > 0", "while begin < end if span > 0", _DOCUMENTS + "-k overlap",
    ),
    Mutant(
        "take what is not in a list with NULL for false", "cdc/views/aggregating.py",
        "return None if any(v is None for (v,) in rows) else False", "return False", _GENERATED,
    ),
    Mutant(
        "let a function of the user's take its time", "cdc/views/post_functions.py",
        "made = self._limit.call(lambda: self._function(given))", "made = self._function(given)",
        f"{_POSTS} -k waits_for",
    ),
    Mutant(
        "wait for a slow function on each document", "cdc/views/post_functions.py",
        "if self._too_long < _MOST_IN_A_ROW and self._all_too_long < _MOST_IN_ALL:", "if True:", f"{_POSTS} -k loops",
    ),
    Mutant(
        "ask for a table's statistics for each view", "connectors/views/view_planning.py",
        "self._asked.update(missing)", "pass", "tests/unit/connectors/views/test_view_statistics.py",
    ),
    Mutant(
        "leave out the row at the end of a range", "cdc/views/row_ranges.py",
        "(bisect_right if low_open else bisect_left)", "(bisect_right)", _SESSIONS,
    ),
    Mutant(
        "end all views for one whose state is away", "connectors/views/view_turns.py",
        "            one.away(failure)\n", "            raise\n",
        "tests/unit/connectors/views/test_view_turns.py -k h259",
    ),
    Mutant(
        "end all views for one that is refused", "connectors/views/view_turns.py",
        "            one.stop(failure)\n", "            raise\n",
        "tests/unit/connectors/views/test_view_turns.py -k h259",
    ),
    Mutant(
        "take a view over a wider type for another one (H466)", "cdc/views/state_reach.py",
        "reached.identity != self.identity", "reached.plan != self.plan", _IDENTITY,
    ),
    Mutant(
        "go on over a state without the blanks of a char that has no length (H477)", "cdc/views/known_views.py",
        'if kind.kind == "bpchar" and kind.typmod < 0 and not kind.array:', "if False:", _IDENTITY,
    ),
    Mutant(
        "end a hold before what waited is published (H476)", "cdc/views/runner_rules.py",
        "if both or not behind:", "if True:", "tests/unit/cdc/views/test_awaited_tables.py -k h476",
    ),
    Mutant(
        "leave parked what a wider type can compute (H466)", "cdc/views/view_runner.py",
        "if state.of_other_types and state.reached.built:", "if False:", _IDENTITY,
    ),
    Mutant(
        "leave the blanks of a char's former length (H475)", "cdc/views/state_reach.py",
        "return (reached.plan, reached.lengths) != (self.plan, self.lengths)", "return reached.plan != self.plan",
        _IDENTITY,
    ),
    Mutant(
        "compute with the former type of a column (H475)", "cdc/views/view_records.py",
        "if not _computes_alike(kind, now, relation):", "if False:", _IDENTITY,
    ),
    Mutant(
        "claim an LSN for rows that are to be read again (H467)", "cdc/views/view_runner.py",
        "whole and news and not reached.awaited else", "whole and news else", _AWAITED,
    ),
    Mutant(
        "look at no tables while the source rests (H468)", "cdc/views/runner_rules.py",
        "return found if found != reached.awaited else None", "return None", _AWAITED,
    ),
    Mutant(
        "try a view that fails as often for ever (H469)", "connectors/views/view_turns.py",
        "return min(AGAIN_S * 2.0 ** min(failures - 1, 10), _LONGEST_S)", "return AGAIN_S",
        "tests/unit/connectors/views/test_view_turns.py -k h469",
    ),
)  # fmt: skip
