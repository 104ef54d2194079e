"""A view's text as people's editors write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.errors import ConfigError
from cdc.settings.model import Settings
from cdc.views.syntax import ViewRefused
from connectors.views.view_planning import plan_view
from tests.unit.cdc.views.view_histories import SHAPES

SQL = "select o.id, o.customer_id\r\n  from orders o;\r\n"


def planned_of(folder: Path, text: bytes, file: str = "v.sql") -> tuple[str, ...]:
    """The columns of a view with this text."""
    (folder / "v.sql").write_bytes(text)
    document = {
        "name": "shop",
        "source": {"dsn": "postgresql://u@h/d", "tables": ["public.*"]},
        "log": {"bootstrap_servers": "b:9092"},
        "views": {"v": {"sql": str(folder / file)}},
    }
    return tuple(name for name, _ in plan_view(Settings.model_validate(document), "v", SHAPES).plan.outputs)


def test_h550_a_mark_of_the_encoding_is_none_of_the_text(tmp_path: Path) -> None:
    assert planned_of(tmp_path, SQL.encode("utf-8-sig")) == planned_of(tmp_path, SQL.encode()) == ("id", "customer_id")


@pytest.mark.parametrize(
    ("text", "file"), [(SQL.encode("utf-16"), "v.sql"), (b"\x7fELF\xff", "v.sql"), (b"", "v\0.sql")]
)
def test_h550_what_is_no_text_is_named(tmp_path: Path, text: bytes, file: str) -> None:
    with pytest.raises(ConfigError, match="the text of the view v cannot be read: ") as refused:
        planned_of(tmp_path, text, file)
    assert refused.value.hint == "[views.v] sql names the file"


@pytest.mark.parametrize("text", ["", ";", "values (1)", "select o.id, date 'x' as d from orders o", "table nope"])
def test_h550_each_refusal_has_a_hint(tmp_path: Path, text: str) -> None:
    with pytest.raises(ViewRefused) as refused:
        planned_of(tmp_path, text.encode())
    assert refused.value.hint
