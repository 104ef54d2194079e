"""Views for programs and ``cdc view show``: their plan, and their documents as the runner's state has them.

view = View.load("cdc.toml", "order_search")
print(view.plan.key, view.document(42))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from cdc.errors import UsageError
from cdc.foreign import quoted
from cdc.schema import TableSchema
from cdc.settings import Settings
from cdc.views.document_pieces import LACKS
from cdc.views.embedded_state import EmbeddedState
from cdc.views.explaining import DocumentPart, parts_of
from cdc.views.lookups import DocumentSource, Row
from cdc.views.post_functions import read_document
from cdc.views.refused import NotComputable
from cdc.views.state_faults import is_there
from cdc.views.state_reach import Reached
from cdc.views.typed_keys import typed_row
from cdc.views.view_plan import ViewPlan, planned
from cdc.views.view_state import ViewState
from cdc.wire.plain import KEYLESS
from connectors.view_looks import state_path
from connectors.view_planning import newest_shapes, plan_view
from connectors.view_topics import known_views
from sinks.sections import load_settings


class _Finished(NamedTuple):
    row: str | None
    lacks: tuple[str, ...]


class View:
    """One view of a pipeline, and the documents that its runner's state has now. One thread at a time."""

    def __init__(self, settings: Settings, name: str) -> None:
        """Read the view's text and the newest shapes of the tables, and plan it.

        ViewRefused for a text that cannot be kept true, ConfigError and UsageError for settings without it, LogError
        where no broker answers.
        """
        self.name = name
        self._settings = settings
        self._view = plan_view(settings, name, newest_shapes(settings))

    @classmethod
    def load(cls, path: str | Path, name: str) -> View:
        """The view ``name`` of the settings in the file ``path``. Raises as :meth:`__init__`."""
        return cls(load_settings(Path(path)), name)

    @staticmethod
    def planned(sql: str, tables: Iterable[TableSchema], *, search_path: tuple[str, ...] = ("public",)) -> ViewPlan:
        """The plan of a SELECT over the shapes of tables, without a server. ViewRefused for what cannot be kept true.

        ``search_path``: schemas of tables that the text names without one.
        """
        return planned(sql, tables, search_path=search_path)

    @property
    def plan(self) -> ViewPlan:
        """Root, key, ties and indexes."""
        return self._view.plan

    def document(self, key: Mapping[str, Any] | str | int) -> dict[str, Any] | None:
        """The document with this key, from the runner's state on this machine. None where the view has none.

        ``key``: the columns of the key with their values, or the value of its one column. JSON columns are parsed, and
        their numbers with a fraction are :class:`decimal.Decimal`, as a function of ``[views.NAME] post`` is given
        them. UsageError where there is no state here, or the key is none of the view's.
        """
        found = self.row(orjson.dumps(dict(key)).decode() if isinstance(key, Mapping) else str(key))
        return None if found is None else read_document(found, dict(self.plan.outputs))

    def row(self, key: str) -> str | None:
        """The document with this key, as JSON text of a row. None where the view has none.

        ``key``: as :func:`cdc.views.typed_keys.typed_row` takes it. UsageError as :meth:`document`, and where the
        document cannot be computed. ConfigError where another text made the state.
        """
        return self._document(key).row

    def shown(self, key: str) -> tuple[str, tuple[str, ...]]:
        """As :meth:`row`, and why it may be another than the text gives, a sentence each: where nothing can be computed
        from a row of a group, or a table holds the view. UsageError where the view has no such document."""
        found = self._document(key)
        if found.row is None:
            hint = "; ".join(found.lacks) or "its root is gone, or WHERE leaves it out"
            raise UsageError(f"{self.name} has no document {key}", hint=hint)
        return found.row, found.lacks

    def _document(self, key: str) -> _Finished:
        row = self._key_row(key)
        path, generation = self._state()
        found = stored_document(path, self.plan, generation, row)
        try:
            return _Finished(self._finished(found.row), found.lacks)
        except NotComputable as failure:
            hint = "the runner parks it by its key"
            raise UsageError(f"{self.name} {key} cannot be computed: {quoted(failure)}", hint=hint) from None

    def parts(self, key: str) -> list[DocumentPart]:
        """The rows that the document is made of, the one that changed last first. ``key``: as :meth:`row` takes it.

        UsageError as :meth:`row`, and for a view of groups: a group is made of every row that belongs to it.
        """
        if self.plan.grouping is not None:
            raise UsageError(f"{self.name} has groups, and a group's rows are not listed", hint="leave --explain out")
        row = self._key_row(key)
        path, generation = self._state()
        with closing(ViewState(path, self.plan, generation)) as state, state.guarded():
            _require_built(state.reached, path)
            return parts_of(self.plan, state.rows, row)

    def _finished(self, found: object) -> str | None:
        if isinstance(found, NotComputable):
            raise found
        if found is None:
            return None
        return str(found) if self._view.post is None else self._view.post(str(found))

    def _key_row(self, key: str) -> Row:
        try:
            return typed_row(self.plan, key)
        except (ValueError, KeyError, TypeError):
            columns = ", ".join(output for _, output in self.plan.key)
            hint = f"its key has the columns {columns}" if columns else f"it has one row, whose key is {KEYLESS}"
            raise UsageError(f"{key} is no key of {self.name}", hint=hint) from None

    def _state(self) -> tuple[Path, int]:
        known = known_views(self._settings).known.get(self.name)
        path = state_path(self._settings, self.name, known.generation if known else 1)
        if known is None or not is_there(path):
            raise UsageError(f"there is no state of the view {self.name} in {path}", hint="cdc view run makes it")
        return path, known.generation


class ShownDocument(NamedTuple):
    """The row of a document, None where there is none. ``lacks``: why it may be another than the text gives, a sentence
    each: the runner claims no LSN at which it is so."""

    row: str | NotComputable | None
    lacks: tuple[str, ...] = ()


def stored_document(path: Path, plan: ViewPlan, generation: int, key: Row) -> ShownDocument:
    """A document of a state. UsageError where that is not built yet, and as :class:`ViewState`."""
    with closing(ViewState(path, plan, generation)) as state, state.guarded():
        _require_built(state.reached, path)
        blocked = EmbeddedState(state.rows, state.unseen, plan).blocked()
        held = _held_by(state.reached)
        if state.groups is not None:
            without = {*blocked, *state.parked()[1]}
            said = _without(len(without), former=key in state.groups.groups_of(without)) if without else ()
            return ShownDocument(state.groups.of([key])[key], (*held, *said))
        if key in blocked:
            return ShownDocument(NotComputable(LACKS))
        return ShownDocument(DocumentSource(plan).of(state.rows, [key])[key], (*held,))


def _held_by(reached: Reached) -> Iterator[str]:
    """Why a runner claims nothing of what its state has, a sentence each."""
    for why in (reached.held, reached.awaited):
        yield from why.values()


def _without(count: int, *, former: bool) -> tuple[str]:
    rows = f"{count:,} row{'s' if count > 1 else ''} of the view"
    if former:
        return (f"nothing can be computed from {rows} now: the figures have the former part of one, or of several",)
    return (f"nothing can be computed from {rows} now: the figures lack what belongs here of them",)


def _require_built(reached: Reached, path: Path) -> None:
    """UsageError for a state that has not read its tables yet: it would have no document of any key."""
    if not reached.built:
        raise UsageError(
            f"the state in {path} is not built yet", hint="cdc view run builds it, cdc status says how far"
        )
