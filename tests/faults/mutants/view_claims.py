"""Rules of what a view claims, ``cdc/views``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_KEYS = "tests/unit/cdc/views/test_key_rows.py"
_PGSYNC = "tests/unit/connectors/views/test_pgsync_schema.py"
_FAILED = "tests/unit/cdc/views/test_failed_rows.py"

MUTANTS = (
    Mutant(
        "claim an LSN before a row's groups are out (H487)", "cdc/views/view_runner.py",
        "below = self._state.fail(failed | dict.fromkeys(blocked, LACKS), below)",
        "self._state.fail(failed | dict.fromkeys(blocked, LACKS), below)", _FAILED,
    ),
    Mutant(
        "keep a key's later fence when it waits once more (H487)", "cdc/views/view_state.py",
        "queued + _THE_LESSER", "queued", _FAILED,
    ),
    Mutant(
        "say that a row that fails once more was computed (H487)", "cdc/views/view_state.py",
        "below = min([below, *(Fence(*found) for found in least)])", "list(least)", _FAILED,
    ),
    Mutant(
        "claim an LSN of a cut that is not proven (H489)", "cdc/views/runner_rules.py",
        "return reached.fence if reached.proven else min(reached.fence, topic_claim)", "return reached.fence",
        "tests/unit/cdc/views/test_unproven_claims.py",
    ),
    Mutant(
        "look for any value of a key that JSON has (H490)", "cdc/views/view_records.py",
        "if value is None or isinstance(value, dict | list) or abs(value if type(value) is int else 0) >= 1 << 63:",
        "if value is None:", _KEYS,
    ),
    Mutant(
        "pass over what a schema of pgsync lacks (H488)", "connectors/views/pgsync_schema.py",
        "if found or member != name:", "if found:", _PGSYNC,
    ),
    Mutant(
        "take a member of a schema of pgsync for a text (H488)", "connectors/views/pgsync_schema.py",
        'wanted = "a text"', 'wanted = ""', _PGSYNC,
    ),
    Mutant(
        "know a value up to the commit of the row that lost it (H493)", "cdc/views/embedded_state.py",
        "min(Fence(position.epoch, position.commit_lsn), self.claimed)",
        "Fence(position.epoch, position.commit_lsn)", "tests/unit/cdc/views/test_lost_claims.py",
    ),
    Mutant(
        "sweep parked documents away below the view's claim (H510)", "cdc/views/state_reach.py",
        "return None if claim < topic_claim else self.sweep", "return self.sweep",
        "tests/unit/cdc/views/test_keeper.py -k h510",
    ),
    Mutant(
        "take a typed number for no text (H511)", "connectors/views/view_showing.py",
        "return (_typed(found if isinstance(found, str) else key, kind),)",
        "return (key_part(found if found is not None else key, kind, nullable),)",
        "tests/unit/cdc/views/test_key_rows.py -k h511",
    ),
    Mutant(
        "read a text up to its NUL (H550)", "cdc/views/syntax.py",
        'if "\\0" in sql:', "if not sql:", "tests/unit/cdc/views/test_refused_views.py",
    ),
    Mutant(
        "try a damaged state again for ever (H551)", "cdc/views/view_state.py",
        "if is_damaged(failure):", "if False:", "tests/unit/cdc/views/test_state_faults.py",
    ),
    Mutant(
        "open the tables of another text's state (H551)", "cdc/views/view_state.py",
        "                bound.require(self.reached, generation, str(path))\n                self.rows",
        "                self.rows", "tests/unit/cdc/views/test_state_faults.py",
    ),
    Mutant(
        "let a killed repair's answered wish stand in the way (H552)", "connectors/views/view_recomputing.py",
        "if answer is None or answer.id != newest.id:", "if True:",
        "tests/integration/views/test_asking_runners.py -k h552",
    ),
    Mutant(
        "take a failing row's part out of its group (H547)", "cdc/views/view_runner.py",
        "known = {k: c for k, c in computed.items() if not isinstance(c, NotComputable)}",
        "known = {k: None if isinstance(c, NotComputable) else c for k, c in computed.items()}",
        "tests/unit/cdc/views/test_failed_rows.py -k h547",
    ),
)  # fmt: skip
