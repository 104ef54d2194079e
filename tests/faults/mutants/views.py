"""Rules of views, ``cdc/views``."""

from __future__ import annotations

from tests.faults.mutants.mutant import Mutant

_KEEPER = "tests/unit/cdc/views/test_keeper.py"
_GENERATED = "tests/integration/views/test_generated.py -k generated"

MUTANTS = (
    Mutant(
        "carry any type into a view as it stands on the wire", "cdc/views/sql_types.py",
        "if orjson.loads(family.example.readable) != family.example.text", "if False",
        "tests/unit/cdc/views/test_refused_views.py",
    ),
    Mutant(
        "read a view's state whatever its format", "cdc/views/view_state.py",
        "members = read_members(text, _ABOUT, _FORMAT)", "members = orjson.loads(text)",
        "tests/unit/cdc/test_stored.py",
    ),
    Mutant(
        "take a cut for whole whatever its progress record's age", "cdc/views/keeper.py",
        "min(self._input.progress_ms, cut.beyond_ms or self._input.progress_ms)",
        "self._clock.now_ns() // 1_000_000", _KEEPER,
    ),
    Mutant(
        "pass over the age of what lies beyond a fence", "cdc/views/keeper.py",
        "min(self._input.progress_ms, cut.beyond_ms or self._input.progress_ms)",
        "self._input.progress_ms", _KEEPER,
    ),
    Mutant(
        "look for documents behind a change only", "cdc/views/embedded_state.py",
        "concerned |= walk.of(self.rows, table, old)", "pass", _GENERATED,
    ),
    Mutant(
        "look for documents before a change only", "cdc/views/embedded_state.py",
        "concerned |= walk.of(self.rows, table, new)", "pass", _GENERATED,
    ),
    Mutant(
        "see a table where it stands first in a view", "cdc/views/root_keys.py",
        "for occurrence in self._plan.of_table(table):",
        "for occurrence in self._plan.of_table(table)[:1]:", _GENERATED,
    ),
    Mutant(
        "pass over the second condition of a left join", "cdc/views/chains.py",
        "right = self._group([item.right], list(item.on), [], inner)",
        "right = self._group([item.right], list(item.on)[:1], [], inner)", _GENERATED,
    ),
    Mutant(
        "pass over HAVING in a subquery", "cdc/views/compiling.py",
        "for condition in query.having:", "for condition in ():", _GENERATED,
    ),
    Mutant(
        "take what is not in a list with NULL for false", "cdc/views/aggregating.py",
        "return None if any(v is None for (v,) in rows) else False", "return False", _GENERATED,
    ),
)  # fmt: skip
