"""One document out of a view's state on this machine, computed beside its runner, with what it may lack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from cdc.errors import UsageError
from cdc.views.document_pieces import LACKS
from cdc.views.embedded_state import EmbeddedState
from cdc.views.lookups import DocumentSource, Row
from cdc.views.refused import NotComputable
from cdc.views.state_reach import Reached
from cdc.views.view_plan import ViewPlan
from cdc.views.view_state import ViewState


class ShownDocument(NamedTuple):
    """The row of a document, None where there is none. ``lacks``: why it may be another than the text gives, a sentence
    each: the runner claims no LSN at which it is so."""

    row: str | NotComputable | None
    lacks: tuple[str, ...] = ()


def stored_document(path: Path, plan: ViewPlan, generation: int, key: Row) -> ShownDocument:
    """A document of a state. UsageError where that is not built yet, and as :class:`ViewState`."""
    with closing(ViewState(path, plan, generation)) as state, state.guarded():
        require_built(state.reached, path)
        blocked = EmbeddedState(state.rows, state.unseen, plan).blocked()
        held = held_by(state.reached)
        if state.groups is not None:
            without = {*blocked, *state.parked()[1]}
            said = _without(len(without), former=key in state.groups.groups_of(without)) if without else ()
            return ShownDocument(state.groups.of([key])[key], (*held, *said))
        if key in blocked:
            return ShownDocument(NotComputable(LACKS))
        return ShownDocument(DocumentSource(plan).of(state.rows, [key])[key], (*held,))


def held_by(reached: Reached) -> Iterator[str]:
    """Why a runner claims nothing of what its state has, a sentence each."""
    for why in (reached.held, reached.awaited):
        yield from why.values()


def _without(count: int, *, former: bool) -> tuple[str]:
    rows = f"{count:,} row{'s' if count > 1 else ''} of the view"
    if former:
        return (f"nothing can be computed from {rows} now: the figures have the former part of one, or of several",)
    return (f"nothing can be computed from {rows} now: the figures lack what belongs here of them",)


def require_built(reached: Reached, path: Path) -> None:
    """UsageError for a state that has not read its tables yet: it would have no document of any key."""
    if not reached.built:
        raise UsageError(
            f"the state in {path} is not built yet", hint="cdc view run builds it, cdc status says how far"
        )
