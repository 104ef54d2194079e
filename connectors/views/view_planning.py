"""From a view's section in the settings to its plan over the shapes of the captured tables, and such sections from a
schema of pgsync (``cdc view import``).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import CdcError, ConfigError, Exit, UsageError
from cdc.process.sql_files import load
from cdc.process.untrusted_text import quoted
from cdc.record.schema import TableSchema
from cdc.record.topic_names import TableName, schema_topic
from cdc.settings.model import Settings, ViewSettings
from cdc.views.known_views import KnownView, ViewIdentity, identity_of, other_identity, other_key, plan_digest
from cdc.views.lookups import ColumnStatistics, TableStatistics
from cdc.views.post_functions import Post, TimeLimit, TookTooLong
from cdc.views.syntax import ViewRefused
from cdc.views.view_plan import ViewPlan, planned
from cdc.views.view_records import view_shape
from connectors.kafka.broker_answers import require_broker
from connectors.kafka.compacted_topic import KafkaCompactedTopic
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.postgres.server.connections import Connection, connect
from connectors.views.pgsync_schema import ForeignKey, ImportedView, SourceTable, imported


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view of the settings with its plan, the shapes of the tables that it uses, and its function on documents."""

    name: str
    settings: ViewSettings
    plan: ViewPlan
    shapes: tuple[TableSchema, ...]
    post: Post | None = None

    @property
    def digest(self) -> str:
        """The view's identity: of its text, of what it keeps and gives, and of its function."""
        digest = plan_digest(self.plan)
        return digest if self.post is None else f"{digest}:{self.post.digest}"

    @property
    def identity(self) -> ViewIdentity:
        """The same, part by part, and without what changes no result."""
        return identity_of(self.plan, self.post.digest if self.post is not None else "")

    def other_than(self, known: KnownView, published: ViewIdentity | None) -> str:
        """The difference from what is published, as a predicate. Empty where it is the same view.

        ``published``: the identity of the published one, None where nothing says it.
        """
        if said := other_key(known.schema, view_shape(self.name, self.plan, known.topic)):
            return said
        if known.digest == self.digest:
            return ""
        return "is published from another text" if published is None else other_identity(published, self.identity)


def view_settings(settings: Settings, name: str) -> ViewSettings:
    """The section of a view. UsageError where there is none."""
    found = settings.views.get(name)
    if found is None:
        known = ", ".join(settings.views) or "none yet; a [views.NAME] section makes one"
        raise UsageError(f"the settings name no view {name}", hint=f"views: {known}")
    return found


def plan_view(settings: Settings, name: str, shapes: Sequence[TableSchema]) -> PlannedView:
    """Read a view's text and plan it over captured shapes. ViewRefused, and ConfigError where there is no text, or no
    function that its section names."""
    section = view_settings(settings, name)
    try:
        sql = Path(section.sql).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as failure:
        raise ConfigError(
            f"the text of the view {name} cannot be read: {quoted(failure)}", hint=f"[views.{name}] sql names the file"
        ) from None
    plan = _planned(settings, name, sql.strip().removesuffix(";"), shapes)
    used = tuple(shape for shape in shapes if shape.table in plan.relations)
    return PlannedView(name, section, plan, used, _post(name, section, plan))


def planned_views(settings: Settings, names: Sequence[str]) -> dict[str, PlannedView | CdcError]:
    """Each of these views with its plan, or why it has none: a table of one may have changed since it was written.

    UsageError for a name that the settings do not have. LogError where Kafka does not answer.
    """
    for name in names:
        view_settings(settings, name)
    shapes, views = newest_shapes(settings), dict[str, PlannedView | CdcError]()
    for name in names:
        try:
            views[name] = plan_view(settings, name, shapes)
        except ViewRefused as refused:
            views[name] = ConfigError(f"the view {name} cannot be kept: {refused.message}", hint=refused.hint)
        except CdcError as failure:
            views[name] = failure
    return views


def _planned(settings: Settings, name: str, sql: str, shapes: Sequence[TableSchema]) -> ViewPlan:
    try:
        return planned(sql, shapes, search_path=tuple(settings.views[name].search_path))
    except ViewRefused as refused:
        refused.hint = refused.hint or f"[views.{name}] sql names its text"
        raise


def _post(name: str, section: ViewSettings, plan: ViewPlan) -> Post | None:
    if not section.post:
        return None
    return load_post(name, section.post, plan, section.post_limit.total_seconds())


def newest_shapes(settings: Settings) -> list[TableSchema]:
    """The newest shape of each captured table, as the schema topic has it."""
    require_broker(settings.log)
    registry = SchemaRegistry(KafkaCompactedTopic(settings.log, schema_topic(settings.name)))
    newest: dict[TableName, TableSchema] = {}
    for shape in registry.versions():
        known = newest.get(shape.table)
        if known is None or shape.version > known.version:
            newest[shape.table] = shape
    return list(newest.values())


log = logging.getLogger(__name__)


IMPORT_LIMIT_S = 30.0
"""For so long the import of a module may take."""


def load_post(
    view: str, name: str, plan: ViewPlan, limit_s: float = 5.0, import_limit_s: float = IMPORT_LIMIT_S
) -> Post:
    """The function ``module:function`` on the documents of a view. The folder where the command runs is searched, too.

    ``limit_s``: for so long it may take for a document. ConfigError where there is no such function, or importing its
    module fails or takes too long, and where the view has masked values, with which a function would compute.
    """
    if plan.masked:
        raise ConfigError(
            f"the view {view} has masked values in {plan.masked[0]}, and [views.{view}] post would compute with them",
            hint="take such columns out of the view, or post out of its section",
        )
    module, _, function = name.partition(":")
    if not module or not function.isidentifier():
        raise ConfigError(f"[views.{view}] post is no function: {name}", hint='write it as "module:function"')
    _search_here()
    found = _imported(view, module, TimeLimit(import_limit_s, partial(_end, f"importing {module}"), SYSTEM_CLOCK))
    made = getattr(found, function, None)
    if not callable(made):
        raise ConfigError(f"[views.{view}] post: the module {module} has no function {function}", hint="see its source")
    return Post(name, made, _digest(view, found, name), plan, TimeLimit(limit_s, partial(_end, name), SYSTEM_CLOCK))


def _end(what: str) -> None:
    """A call that nothing interrupts holds up every view of the process, and would for ever."""
    log.error("view_post_stuck", extra={"function": what, "exit": int(Exit.CONFIG)})
    logging.shutdown()
    os._exit(Exit.CONFIG)


def _search_here() -> None:
    # Behind all others: a folder of the user's hides no package.
    here = str(Path.cwd())
    if not {here, ""}.intersection(sys.path):
        sys.path.append(here)


def _imported(view: str, module: str, limit: TimeLimit) -> ModuleType:
    try:
        return limit.call(lambda: import_module(module))
    except TookTooLong:
        hint = "a module that only defines the function is imported at once; see what it waits for"
        raise ConfigError(f"[views.{view}] post: importing {module} took longer than its limit", hint=hint) from None
    except Exception as failure:
        hint = "it has to be importable where cdc runs: its folder in PYTHONPATH, or the one that cdc is started in"
        why = quoted(failure) if isinstance(failure, ImportError) else type(failure).__name__
        raise ConfigError(f"[views.{view}] post cannot be imported: {why}", hint=hint) from None


def _digest(view: str, module: ModuleType, name: str) -> str:
    """Of the whole module: what the function calls may stand beside it."""
    spec = find_spec(module.__name__)
    try:
        source = Path(spec.origin).read_bytes() if spec is not None and spec.origin is not None else None
    except OSError:
        source = None
    if source is None:
        raise ConfigError(
            f"[views.{view}] post: the module of {name} has no file", hint="name a function of a module in a file"
        )
    return blake2b(source + name.encode(), digest_size=16).hexdigest()


class StatisticsOnce:
    """Statistics of the tables of many views: each table is asked for once, and a server that is away, too."""

    def __init__(self, read: Callable[[Iterable[TableName]], Mapping[TableName, TableStatistics]]) -> None:
        self._read = read
        self._asked: set[TableName] = set()
        self._known: dict[TableName, TableStatistics] = {}
        self._failure: CdcError | None = None

    def of(self, tables: Iterable[TableName]) -> Mapping[TableName, TableStatistics]:
        """Those of these tables that are known. Raises what the reading has raised."""
        wanted = list(tables)
        missing = [table for table in wanted if table not in self._asked]
        if self._failure is not None:
            raise self._failure
        if missing:
            try:
                self._known |= self._read(missing)
            except CdcError as failure:
                self._failure = failure
                raise
            self._asked.update(missing)
        return {table: self._known[table] for table in wanted if table in self._known}


def read_statistics(settings: Settings, tables: Iterable[TableName]) -> dict[TableName, TableStatistics]:
    """Rows and columns of these tables, as ANALYZE left them. SourceError where Postgres does not answer."""
    wanted = list(tables)
    names: dict[str, Any] = {"schemas": [table.schema for table in wanted], "names": [table.table for table in wanted]}
    blocks = load(__package__)
    with closing(connect(settings.source, application_name="cdc view check", autocommit=True)) as conn:
        rows = {TableName(s, t): n for s, t, n in conn.execute(blocks["table_statistics"].encode(), names).fetchall()}
        columns: dict[TableName, dict[str, ColumnStatistics]] = {table: {} for table in rows}
        for schema, table, column, distinct, commonest, width in conn.execute(
            blocks["column_statistics"].encode(), names
        ):
            name = TableName(schema, table)
            # A negative one is a share of the rows.
            values = distinct if distinct >= 0 else -distinct * rows[name]
            columns[name][column] = ColumnStatistics(values, commonest, width)
    return {name: TableStatistics(count, columns[name]) for name, count in rows.items()}


def imported_views(settings: Settings, path: Path) -> list[ImportedView]:
    """Each document of a pgsync schema as a view. The source's catalog says columns and keys.

    ConfigError where the file is no such schema. ImportRefused for one that cannot be written as a view. SourceError
    where Postgres does not answer.
    """
    documents = list(_documents(path))
    with closing(connect(settings.source, application_name="cdc view import", autocommit=True)) as conn:
        tables, keys = _tables(conn), [ForeignKey(*row) for row in _rows(conn, "foreign_keys")]
        reserved = {str(word) for (word,) in _rows(conn, "reserved")}
    return [imported(document, tables, keys, reserved) for document in documents]


def write_text(path: Path, sql: str) -> None:
    """Write a view's text. ConfigError where the file is there already, cannot be written, or has a name that no
    settings can have."""
    try:
        str(path).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(sql)
    except FileExistsError:
        raise ConfigError(f"{path} is there already", hint="name another folder, or remove the file") from None
    except (OSError, ValueError) as failure:
        raise ConfigError(f"{path} cannot be written: {quoted(failure)}", hint="name a folder of yours") from None


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as failure:
        raise ConfigError(f"{path} cannot be read: {quoted(failure)}", hint="name pgsync's schema.json") from None
    for document in found if isinstance(found, list) else [found]:
        if not isinstance(document, dict):
            raise ConfigError(f"{path} is no schema of pgsync", hint="it is a list of documents with nodes")
        yield document


def _tables(conn: Connection) -> dict[str, SourceTable]:
    columns: dict[tuple[str, str], dict[str, str]] = {}
    keys: dict[tuple[str, str], dict[int, str]] = {}
    for schema, table, column, kind, place in _rows(conn, "columns"):
        columns.setdefault((schema, table), {})[column] = kind
        if place >= 0:
            keys.setdefault((schema, table), {})[place] = column
    found = (
        SourceTable(schema, table, named, [column for _, column in sorted(keys.get((schema, table), {}).items())])
        for (schema, table), named in columns.items()
    )
    return {table.full: table for table in found}


def _rows(conn: Connection, name: str) -> list[tuple[Any, ...]]:
    return conn.execute(load(__package__)[name].encode()).fetchall()
