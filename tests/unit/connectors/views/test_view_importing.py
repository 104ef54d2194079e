"""Files of imported views."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.errors import ConfigError
from connectors.views.view_planning import write_text


@pytest.mark.parametrize("folder", ["in\udcff", "a\0b"])
def test_h550_a_file_that_no_settings_can_name_is_not_written(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ConfigError, match="cannot be written") as refused:
        write_text(tmp_path / folder / "v.sql", "select 1")
    assert refused.value.hint
    assert list(tmp_path.iterdir()) == []
