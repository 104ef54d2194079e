"""The state of a view, thrown away."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.errors import ConfigError
from connectors.view_ending import remove_state


class Killed(Exception):
    """The process ends here."""


def killed(_folder: Path) -> None:
    """Ends within the removal."""
    raise Killed


def test_h240_half_a_state_is_none(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "manifest").mkdir(parents=True)
    with pytest.raises(Killed):
        remove_state(state, killed)
    assert not state.exists(), "what is left is not where a runner looks"
    (state / "manifest").mkdir(parents=True)
    remove_state(state)
    assert list(tmp_path.iterdir()) == []


def test_h551_a_state_that_stays_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (tmp_path / "state-wal").mkdir()
    with pytest.raises(ConfigError, match=r"the state of the view cannot be kept in .*state: ") as refused:
        remove_state(state)
    assert "names another folder" in refused.value.hint
