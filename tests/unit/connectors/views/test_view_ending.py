"""The state of a view, thrown away."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.process.errors import ConfigError
from connectors.views.view_ending import remove_state


def test_h551_a_state_that_stays_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (tmp_path / "state-wal").mkdir()
    with pytest.raises(ConfigError, match=r"the state of the view cannot be kept in .*state: ") as refused:
        remove_state(state)
    assert "names another folder" in refused.value.hint
