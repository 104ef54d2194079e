"""A view's section says where its state is and which engine keeps it. An engine refuses what it cannot keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ConfigError, Exit
from cdc.views.state_places import (
    BUCKETS,
    StatePlace,
    require_its_engine,
    require_kept_on_executors,
    state_place,
)
from cdc.views.view_plan import planned
from tests.unit.cdc.views.view_histories import SHAPES

DOCUMENTS = planned("select o.id, o.customer_id from orders o", SHAPES)
GROUPS = planned("select o.customer_id, count(*) as n from orders o group by 1", SHAPES)


def test_a_folder_is_on_one_machine_unless_it_says_spark() -> None:
    assert state_place("v", "view-state") == StatePlace(Path("view-state"), 0)
    assert state_place("v", "spark:/mnt/views") == StatePlace(Path("/mnt/views"), BUCKETS)
    assert state_place("v", "spark:views?buckets=7") == StatePlace(Path("views"), 7)
    assert not state_place("v", "view-state").on_executors
    assert state_place("v", "/mnt/views", "spark", 7) == StatePlace(Path("/mnt/views"), 7)
    assert state_place("v", "spark:views?buckets=7", "spark", 9) == StatePlace(Path("views"), 7), "the older form wins"


def test_h381_another_engine_is_not_begun_in_silence(tmp_path: Path) -> None:
    place = state_place("v", str(tmp_path), "spark")
    own, other = tmp_path / f"v.{place.ending}", tmp_path / f"v.{place.other.ending}"
    require_its_engine("v", place, own, other)
    other.write_bytes(b"")
    with pytest.raises(ConfigError, match=r"was made by the engine embedded, and .* names spark") as refused:
        require_its_engine("v", place, own, other)
    assert 'engine = "embedded"' in refused.value.hint
    assert "cdc view rebuild v" in refused.value.hint
    own.mkdir()
    require_its_engine("v", place, own, other)


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_h551_no_folder_has_a_nul_in_its_name(engine: str) -> None:
    with pytest.raises(ConfigError, match="the state of the view v lies in no folder") as refused:
        state_place("v", "a\0b", engine)
    assert "names another folder" in refused.value.hint


@pytest.mark.parametrize(
    "place", ["spark:", "spark:a?buckets=0", "spark:a?buckets=9999", "spark:s3://a/b", "spark:a?b=1"]
)
def test_a_place_of_sparks_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match="the view v has no place for a state of Spark's") as refused:
        state_place("v", place)
    assert refused.value.exit is Exit.CONFIG
    assert "all executors share" in refused.value.hint


def test_what_executors_keep_is_not_refused() -> None:
    require_kept_on_executors("v", DOCUMENTS, post=False, close=False, eager=False)


@pytest.mark.parametrize(
    ("plan", "refused", "why"),
    [
        (GROUPS, "", "has groups"),
        (DOCUMENTS, "post", "has a function"),
        (DOCUMENTS, "close", "closes windows"),
        (DOCUMENTS, "eager", "is eager"),
    ],
)
def test_what_executors_do_not_keep_is_refused(plan: object, refused: str, why: str) -> None:
    flags = {name: name == refused for name in ("post", "close", "eager")}
    with pytest.raises(ConfigError, match=why) as said:
        require_kept_on_executors("v", plan, **flags)  # type: ignore[arg-type]
    assert said.value.exit is Exit.CONFIG
    assert "the engine on one machine keeps it" in said.value.hint
