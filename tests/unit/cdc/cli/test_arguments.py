"""Where ``--config`` may stand."""

import pytest

from cdc.cli.app import hoisted


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["run"], ["run"]),
        (["run", "--config", "x"], ["--config", "x", "run"]),
        (["--config", "x", "run"], ["--config", "x", "run"]),
        (["events", "--config=x", "orders", "--json"], ["--config=x", "events", "orders", "--json"]),
        (["run", "--", "--config", "x"], ["run", "--", "--config", "x"]),
        (["run", "--config"], ["run", "--config"]),
    ],
)
def test_the_settings_file_may_be_named_before_or_behind_the_command(typed: list[str], meant: list[str]) -> None:
    assert hoisted(typed) == meant
