"""The views that read a table, and what of it their topics and their runners' states hold: for ``cdc forget``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson

from cdc.errors import CdcError, Exit, UsageError
from cdc.foreign import quoted
from cdc.forget.document_history import DocumentForm
from cdc.forget.holding import Kept, Trace
from cdc.forget.ports import ForgetView
from cdc.forget.typed_key import TypedKey
from cdc.found import Unknown, look
from cdc.position import Position
from cdc.progress import Progress
from cdc.schema import TableSchema
from cdc.settings import Settings
from cdc.topic import TableName
from cdc.views.fences import fence_of
from cdc.views.known_views import KnownView, Views, late_topic
from cdc.views.lookups import Row
from cdc.views.sqlite_rows import SqliteRows
from cdc.views.state_faults import StateAway
from cdc.views.stored_values import stored
from cdc.views.view_plan import ViewPlan
from cdc.wire.types import INTEGERS
from connectors.kafka.admin import TopicAdmin
from connectors.view_looks import state_path
from connectors.view_planning import newest_shapes, plan_view
from connectors.view_topics import generation_topics, known_views

_BUSY_S = 1.0


def views_of(settings: Settings, table: TableName) -> Sequence[ForgetView]:
    """The views that read the table, and those of which that is not known. LogError when no broker answers."""
    views = known_views(settings)
    if not (settings.views or views.known):
        return ()
    shapes = newest_shapes(settings)
    lates = TopicAdmin(settings.log).describe([late_topic(settings.name, name) for name in views.known])
    found: list[ForgetView] = []
    for name in sorted({*settings.views, *views.known}):
        plan = look(lambda: _plan(settings, name, shapes))  # noqa: B023 - called at once
        if isinstance(plan, Unknown) or table in plan.relations:
            late = late_topic(settings.name, name)
            known = views.known.get(name)
            topics = generation_topics(settings, name) if known is not None else {}
            former = [topic for number, topic in topics.items() if known is not None and number < known.generation]
            found.append(LookedView(settings, name, plan, views, late if late in lates else None, former))
    return found


def documents_that_may_nest(settings: Settings, views: Iterable[ForgetView]) -> Callable[[str], bool]:
    """Whether a topic may be one of documents that nest rows of a table, by the views that read it: of any view that
    is not known to read others alone, those that were dropped among them."""
    reading = {view.name for view in views}
    apart = tuple(f"{settings.name}.view.{name}." for name in settings.views if name not in reading)
    return lambda topic: topic.startswith(f"{settings.name}.view.") and not topic.startswith(apart)


def _plan(settings: Settings, name: str, shapes: Sequence[TableSchema]) -> ViewPlan:
    if name not in settings.views:
        raise UsageError(
            f"the view {name} is published, and the settings have none: what it reads is not known",
            hint=f"cdc view drop {name}, or put its section back",
            exit=Exit.CONFIG,
        )
    return plan_view(settings, name, shapes).plan


class LookedView:
    """One view. ``plan``: unknown where its text is away. ``former``: the topics of its generations before. Implements
    :class:`cdc.forget.ports.ForgetView`."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        plan: ViewPlan | Unknown,
        views: Views,
        late: str | None,
        former: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._known: KnownView | None = views.known.get(name)
        self._name = name
        self._late = late
        self._former = former

    @property
    def name(self) -> str:
        return self._name

    @property
    def published(self) -> TableSchema | None:
        return self._known.schema if self._known is not None else None

    @property
    def late(self) -> str | None:
        return self._late

    @property
    def form(self) -> DocumentForm:
        if isinstance(self._plan, Unknown):
            return DocumentForm(in_keys=True, final=True)
        groups = self._plan.grouping
        if groups is None:
            return DocumentForm()
        # A closed window whose one key is its time, and that counts, has no value of a row.
        counts = len(groups.keys) == 1 and all(figure.kept in ("count", "different") for figure in groups.figures)
        return DocumentForm(in_keys=bool(groups.keys), final=self._closes and not counts)

    @property
    def _closes(self) -> bool:
        return bool(self._settings.views[self._name].close)

    def deleted(self, table: TableSchema, key: TypedKey) -> Position | None:
        path = self._path()
        if isinstance(self._plan, Unknown) or not path.is_file():
            return None
        row = _key_row(self._plan, table, key)
        with suppress(sqlite3.Error, ValueError), closing(_opened(path)) as session:
            found = SqliteRows(session, self._plan.relations).known(table.table, [row]).get(row)
            return Position.parse(found[1]) if found is not None and found[0] is None else None
        return None

    def _path(self) -> Path:
        return state_path(self._settings, self._name, self._known.generation if self._known is not None else 1)

    def reached(self) -> tuple[int, int] | None:
        progress: Progress | None = known_views(self._settings).progress.get(self._name)
        return fence_of(progress) if progress is not None else None

    def in_state(self, table: TableSchema, key: TypedKey) -> Iterable[Trace]:
        for topic in self._former:
            what, cure = f"documents of a former generation in {topic}", f"cdc view drop {self._name} --former"
            yield Trace(what=what, kept=Kept.MAYBE, until="the topic is deleted", cure=cure)
        for left in self._left_states():
            what = f"rows in {left}, which another generation has left"
            yield Trace(what=what, kept=Kept.MAYBE, until="the file is removed, or a rebuild of that text is ended")
        if isinstance(self._plan, Unknown):
            raise self._plan.because
        yield from self._in_own_state(self._path(), table, key)

    def _left_states(self) -> Iterator[Path]:
        """States of other generations, of rebuilds that were given up or go on."""
        if self._name not in self._settings.views:
            return
        own = str(self._known.generation if self._known is not None else 1)
        start = f"{self._settings.name}.{self._name}."
        for path in sorted(self._path().parent.glob(f"{start}*")):
            number, _, ending = path.name.removeprefix(start).partition(".")
            if number.isdecimal() and number != own and ending == "sqlite":
                yield path

    def _in_own_state(self, path: Path, table: TableSchema, key: TypedKey) -> Iterable[Trace]:
        assert not isinstance(self._plan, Unknown)
        if not path.exists():
            raise _away(self._name, path)
        try:
            found = list(_in_file(path, self._plan, self._name, table, key))
            return [*found, *_closed(path, self._name)] if self.form.final else found
        except sqlite3.Error as error:
            raise StateAway(
                f"the state of the view {self._name} cannot be read: {quoted(error)}", hint="run the command again"
            ) from None


def _away(name: str, path: Path) -> CdcError:
    return StateAway(
        f"the state of the view {name} is not on this machine",
        hint=f"run cdc forget where cdc view run {name} runs, or {_anew(name)} there; looked for {path}",
    )


def _anew(name: str) -> str:
    return f"cdc view rebuild {name}"


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_S)


def _closed(path: Path, view: str) -> Iterator[Trace]:
    """The last documents of closed windows, which stay as they are."""
    with closing(_opened(path)) as session:
        (count,) = session.execute("SELECT count(document) FROM closed").fetchone()
    if count:
        what, until = f"the last documents of {count} closed windows in {path}", "the view is dropped"
        yield Trace(what=what, kept=Kept.MAYBE, until=until, cure=f"cdc view drop {view}")


def _in_file(path: Path, plan: ViewPlan, view: str, table: TableSchema, key: TypedKey) -> Iterator[Trace]:
    """Rows, memories of deletes, and pages that were written over."""
    row, name = _key_row(plan, table, key), table.table
    with closing(_opened(path)) as session:
        found = SqliteRows(session, plan.relations).known(name, [row]).get(row)
        ahead = "SELECT 1 FROM ahead WHERE tbl = ? AND key = ?"
        waits = session.execute(ahead, (_text([name.schema, name.table]), _text(row))).fetchone()
        if waits or (found is not None and found[0] is not None):
            until = "its runner has passed the delete"
            what = f"the row in {path}"
            yield Trace(what=what, kept=Kept.ROW, until=until, passing=True, cure=f"cdc view run {view}")
        elif found is not None:
            what, until = f"the memory of the delete in {path}", "the state is made anew"
            yield Trace(what=what, kept=Kept.KEY, until=until, cure=_anew(view))
        if not session.execute("PRAGMA secure_delete").fetchone()[0]:
            what = f"freed pages of {path}: this SQLite does not write over them"
            yield Trace(what=what, kept=Kept.MAYBE, until="the state is made anew", cure=_anew(view))
        session.commit()
        # Pages from before the delete go into the file, where they have been written over.
        busy, *_ = session.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            what = f"older pages in {path}-wal, which its runner uses now"
            yield Trace(what=what, kept=Kept.MAYBE, until="its runner is between two turns", passing=True)


def _key_row(plan: ViewPlan, table: TableSchema, key: TypedKey) -> Row:
    """The key as the state has it."""
    parts = {c.name: _plain(unquote(part), c.kind) for c, part in zip(table.key, key.text.split(":"), strict=True)}
    kept, row = plan.relations[table.table], []
    for column in kept.key:
        convert = stored(kept.kind(column))
        row.append(parts[column] if convert is None else convert(parts[column]))
    return tuple(row)


def _plain(part: str, kind: str) -> Any:
    if kind in INTEGERS:
        return int(part)
    if kind in ("float4", "float8"):
        return float(part)
    return part == "true" if kind == "bool" else part


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
