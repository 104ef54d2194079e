"""From a view's section in the settings to its plan over the shapes of the captured tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import CdcError, ConfigError, UsageError
from cdc.foreign import quoted
from cdc.schema import TableSchema
from cdc.settings import Settings, ViewSettings
from cdc.topic import TableName, schema_topic
from cdc.views.known_views import KnownView
from cdc.views.post_functions import Post
from cdc.views.record_rows import view_shape
from cdc.views.refused import ViewRefused
from cdc.views.view_identity import ViewIdentity, identity_of, other_identity, other_key, plan_digest
from cdc.views.view_plan import ViewPlan, planned
from connectors.kafka.compacted import KafkaCompactedTopic
from connectors.kafka.reach import require_broker
from connectors.kafka.schema_registry import SchemaRegistry
from connectors.view_posts import load_post


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
