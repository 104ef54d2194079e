"""The states of a view that may hold a row, as ``cdc forget`` asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.forget.holding import Kept, Trace
from cdc.forget.typed_key import TypedKey
from cdc.settings import Settings
from cdc.views.known_views import Views
from cdc.views.state_faults import StateAway
from cdc.views.view_plan import planned
from connectors.view_forgetting import LookedView
from tests.unit.cdc.views.view_histories import SHAPES

PLAN = planned("select o.id, o.customer_id from orders o", SHAPES)


def view_settings(folder: Path) -> Settings:
    return Settings.model_validate(
        {
            "name": "shop",
            "source": {"dsn": "postgresql://u@h/d", "tables": ["public.*"]},
            "log": {"bootstrap_servers": "b:9092"},
            "views": {"v": {"sql": "v.sql", "state": str(folder)}},
        }
    )


def test_h410_documents_of_a_former_generation_may_hold_it(tmp_path: Path) -> None:
    key = TypedKey.read("1", SHAPES[0])
    view = LookedView(view_settings(tmp_path), "v", PLAN, Views({}, {}), None, ["shop.view.v.1"])
    found: list[Trace] = []
    with pytest.raises(StateAway):
        found.extend(view.in_state(SHAPES[0], key))
    (one,) = found
    assert (one.kept, one.what, one.cure) == (
        Kept.MAYBE,
        "documents of a former generation in shop.view.v.1",
        "cdc view drop v --former",
    )


def test_h410_a_state_of_another_generation_may_hold_it(tmp_path: Path) -> None:
    left = tmp_path / "shop.v.2.sqlite"
    for name in (left.name, "shop.v.2.sqlite-wal", "shop.v.2.sqlite.lock", "shop.v.x.sqlite", "shop.w.2.sqlite"):
        (tmp_path / name).touch()
    found: list[Trace] = []
    with pytest.raises(StateAway):
        view = LookedView(view_settings(tmp_path), "v", PLAN, Views({}, {}), None)
        found.extend(view.in_state(SHAPES[0], TypedKey.read("1", SHAPES[0])))
    assert [(one.kept, one.what) for one in found] == [
        (Kept.MAYBE, f"rows in {left}, which another generation has left")
    ]
