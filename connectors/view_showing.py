"""One document of a view from the state of its runner."""

from __future__ import annotations

from contextlib import closing

import orjson

from cdc.errors import UsageError
from cdc.settings import Settings
from cdc.views.lookups import DocumentSource
from cdc.views.refused import NotComputable
from cdc.views.view_records import key_row
from cdc.views.view_state import ViewState
from cdc.wire.plain import KEYLESS
from connectors.view_looks import state_path
from connectors.view_running import newest_shapes, plan_view
from connectors.view_topics import known_views


def document(settings: Settings, name: str, key: str) -> str:
    """The row of a view as JSON text, from the state as it is now. UsageError where there is none.

    ``key``: a JSON object of the key's columns, or the value of its one column. Of a view of one row ``{}`` or ``all``.
    """
    view = plan_view(settings, name, newest_shapes(settings))
    known = known_views(settings).known.get(name)
    path = state_path(settings, name, known.generation if known else 1)
    if known is None or not path.exists():
        raise UsageError(f"there is no state of the view {name} in {path}", hint="cdc view run makes it")
    try:
        row = key_row(view.plan, _key(view.plan.key, key))
    except (ValueError, KeyError, TypeError):
        columns = ", ".join(output for _, output in view.plan.key)
        hint = f"its key has the columns {columns}" if columns else f"it has one row, whose key is {KEYLESS}"
        raise UsageError(f"{key} is no key of {name}", hint=hint) from None
    with closing(ViewState(path, view.plan, known.generation)) as state:
        groups = state.groups
        found = (DocumentSource(view.plan).of(state.rows, [row]) if groups is None else groups.of([row]))[row]
    if isinstance(found, NotComputable):
        raise UsageError(f"{name} {key} cannot be computed: {found}", hint="Postgres would refuse it as well")
    if found is None:
        raise UsageError(f"{name} has no document {key}", hint="its root is gone, or WHERE leaves it out")
    return str(found)


def _key(columns: tuple[tuple[str, str], ...], key: str) -> bytes:
    if key.startswith("{") or not columns:
        return b"{}" if key == KEYLESS else key.encode()
    if len(columns) != 1:
        raise ValueError("a key of several columns is a JSON object")
    try:
        value = orjson.loads(key)
    except orjson.JSONDecodeError:
        value = key
    return orjson.dumps({columns[0][1]: value})
