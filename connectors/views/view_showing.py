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

from cdc.process.errors import UsageError
from cdc.process.untrusted_text import quoted
from cdc.record.position import Position
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName
from cdc.settings.model import Settings
from cdc.views.conversions import cast
from cdc.views.embedded_state import EmbeddedState, SqliteRows
from cdc.views.lookups import DocumentSource, Row
from cdc.views.post_functions import read_document
from cdc.views.runner_rules import LACKS
from cdc.views.sql_types import PRINTED, Group, SqlType
from cdc.views.state_reach import Reached, is_there
from cdc.views.stored_values import cell
from cdc.views.syntax import NotComputable
from cdc.views.view_plan import ViewPlan, planned
from cdc.views.view_records import key_part
from cdc.views.view_state import ViewState
from cdc.wire.plain import KEYLESS
from connectors.views.view_planning import newest_shapes, plan_view
from connectors.views.view_topics import known_views, state_path
from sinks.contract.kinds import load_settings


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

        ``key``: as :func:`connectors.views.view_showing.typed_row` takes it. UsageError as :meth:`document`, and
        where the document cannot be computed. ConfigError where another text made the state.
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


class DocumentPart(NamedTuple):
    """A row that a document shows or is tied by. ``position``: of its last change."""

    table: TableName
    key: Row
    position: Position


def parts_of(plan: ViewPlan, rows: SqliteRows, key: Row) -> list[DocumentPart]:
    """The parts of the document with this key, the one that changed last first. Nothing where there is no root.

    A row that left the document is none of them: it is in none of its tables' rows any more.
    """
    found: dict[TableName, set[Row]] = {}
    for occurrence, rows_of in DocumentSource(plan).rows_of(rows, key):
        columns = [occurrence.columns.index(column) for column in plan.relations[occurrence.table].key]
        found.setdefault(occurrence.table, set()).update(tuple(row[i] for i in columns) for row in rows_of)
    parts = [
        DocumentPart(table, own, Position.parse(pos))
        for table, keys in found.items()
        for own, (_, pos) in rows.known(table, sorted(keys)).items()
    ]
    return sorted(parts, key=lambda part: (part.position, part.table, part.key), reverse=True)


# A view's key as a person types it: a value of its one column, or a JSON object. Pure.
#
# ``42`` is the text 42 where the column is a text, and a number where it is one. Dates, times, numbers and uuids are
# read as Postgres reads them, so a uuid may have capitals and a numeric fewer digits than its column.

_TEXT = SqlType("text")
_READ = frozenset(
    {
        Group.BOOLEAN,
        Group.INTEGER,
        Group.NUMERIC,
        Group.DATE,
        Group.TIME,
        Group.TIMESTAMP,
        Group.TIMESTAMPTZ,
        Group.INTERVAL,
        Group.UUID,
    }
)
"""Groups of which Postgres takes other spellings than the one on the wire."""


def typed_row(plan: ViewPlan, key: str) -> Row:
    """The key in the state that a typed one means. ValueError where it is none of the view's.

    ``key``: a JSON object of the key's columns, or the value of its one column, in quotes or without. Of a view of one
    row ``{}`` or ``all``. ``null`` is NULL where a group's key may be it, and ``"null"`` the word.
    """
    kinds = {output: kind for (_, output), kind in zip(plan.key, plan.key_kinds, strict=True)}
    nullable = plan.grouping is not None
    key.encode()  # A ValueError where a shell gave bytes that are no UTF-8: no row has them.
    found = _parsed(key)
    if not kinds and key == KEYLESS:
        return ()
    if isinstance(found, dict) and found.keys() == kinds.keys():
        return tuple(_member(found[name], kind, nullable) for name, kind in kinds.items())
    if len(kinds) != 1:
        raise ValueError("a key of several columns is a JSON object")
    (kind,) = kinds.values()
    if found is None and key == "null" and nullable:
        return (None,)
    return (_typed(found if isinstance(found, str) else key, kind),)


def _parsed(key: str) -> object:
    try:
        return orjson.loads(key)
    except orjson.JSONDecodeError:
        return None


def _member(value: Any, kind: SqlType, nullable: bool) -> Any:
    """A value of a JSON object. A number stands for its text where the column is no number."""
    if isinstance(value, str):
        return _typed(value, kind)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _typed(str(value), kind) if is_number else key_part(value, kind, nullable)


def _typed(text: str, kind: SqlType) -> Any:
    if kind.group in _READ:
        try:
            read, keep = cast(_TEXT, kind), cell(kind)
            value = text if read is None else read(text)
            return value if keep is None else keep(value)
        except (ArithmeticError, KeyError, ValueError):
            pass  # It may stand as it does on the wire: a year before 1 BC, an interval in ISO 8601.
    as_json = kind.group is Group.FLOAT or kind.kind in PRINTED
    number = _parsed(text) if as_json else None
    return key_part(text if number is None else number, kind, False)
