"""Rules of what a view claims, ``cdc/views``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_FAILED = "tests/unit/cdc/views/test_failed_rows.py"

MUTANTS = (
    Mutant(
        "claim an LSN before a row's groups are out (H487)", "cdc/views/keeper.py",
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
        "claim an LSN of a cut that is not proven (H489)", "cdc/views/keeper_rules.py",
        "return reached.fence if reached.proven else min(reached.fence, topic_claim)", "return reached.fence",
        "tests/unit/cdc/views/test_unproven_claims.py",
    ),
    Mutant(
        "sweep parked documents away below the view's claim (H510)", "cdc/views/state_reach.py",
        "return None if claim < topic_claim else self.sweep", "return self.sweep",
        "tests/unit/cdc/views/test_keeper.py -k h510",
    ),
    Mutant(
        "note a mark that waits as written (H510)", "spark/views/bucket_keeper.py",
        "sweep=None if sweep else self._at.sweep", "sweep=None", "tests/unit/spark/test_bucket_keeper.py -k h510",
    ),
    Mutant(
        "take a typed number for no text (H511)", "cdc/views/typed_keys.py",
        "return (_typed(found if isinstance(found, str) else key, kind),)",
        "return (key_part(found if found is not None else key, kind, nullable),)",
        "tests/unit/cdc/views/test_key_rows.py -k h511",
    ),
)  # fmt: skip
