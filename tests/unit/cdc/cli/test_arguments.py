"""Where the global options may stand."""

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
        (["run", "-c"], ["run", "-c"]),
        (["run", "-c", "x"], ["-c", "x", "run"]),
        (["status", "-vv", "-c", "x", "--json"], ["-vv", "-c", "x", "status", "--json"]),
        (["-c", "run", "check"], ["-c", "run", "check"]),
        (["run", "-v", "--", "-v"], ["-v", "run", "--", "-v"]),
        (["run", "-c", "--", "x"], ["run", "-c", "--", "x"]),
        ([], []),
    ],
)
def test_global_options_stand_before_or_behind_the_command(typed: list[str], meant: list[str]) -> None:
    assert hoisted(typed) == meant
