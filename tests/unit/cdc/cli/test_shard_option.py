"""Which settings a command gets of a pipeline with shards of capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.cli.app import COMMANDS, OF_EACH, OF_SHARD, OF_WHOLE, Invocation, hoisted, run
from cdc.errors import ConfigError, Exit, UsageError
from cdc.shard_plan import each_shard

CONFIG = """
name = "shop"
[source]
dsn = "host=127.0.0.1"
tables = ["a.b", "a.c"]
[log]
bootstrap_servers = "k:1"
"""
DIVIDED = f'{CONFIG}[capture.shards]\nfirst = ["a.b"]\nsecond = ["a.c"]\n'


def invocation(folder: Path, text: str, command: str, shard: str = "") -> Invocation:
    path = folder / "cdc.toml"
    path.write_text(text)
    made = Invocation(path)
    made.command, made.shard = command, shard
    return made


def test_a_command_of_one_shard_gets_its_settings(tmp_path: Path) -> None:
    for command in OF_SHARD | OF_EACH:
        settings = invocation(tmp_path, DIVIDED, command, "second").settings()
        assert (settings.shard, settings.slot, settings.source.tables) == ("second", "cdc_shop__second", ("a.c",))
        assert each_shard(settings) == (settings,)
    for command in OF_EACH:
        assert [one.shard for one in each_shard(invocation(tmp_path, DIVIDED, command).settings())] == [
            "first",
            "second",
        ]
    for command in OF_SHARD:
        with pytest.raises(ConfigError) as refused:
            invocation(tmp_path, DIVIDED, command).settings()
        assert f"cdc {command} --shard first" in refused.value.hint


def test_a_command_of_all_takes_no_shard(tmp_path: Path) -> None:
    for command in OF_WHOLE:
        assert invocation(tmp_path, DIVIDED, command).settings().shard == ""
        with pytest.raises(UsageError, match="takes no --shard"):
            invocation(tmp_path, DIVIDED, command, "first").settings()


def test_every_other_command_refuses_shards(tmp_path: Path) -> None:
    others = {entry.name for entry in COMMANDS} - OF_SHARD - OF_EACH - OF_WHOLE
    assert {"diff", "forget", "up", "view", "connect", "share"} <= others
    for command in others:
        with pytest.raises(ConfigError, match=f"cdc {command} does not work for a pipeline with"):
            invocation(tmp_path, DIVIDED, command).settings()


def test_without_shards_no_command_is_refused(tmp_path: Path) -> None:
    for entry in COMMANDS:
        assert invocation(tmp_path, CONFIG, entry.name).settings().shard == ""
    with pytest.raises(UsageError, match="the pipeline shop has no shard first"):
        invocation(tmp_path, CONFIG, "run", "first").settings()


def test_the_option_may_stand_behind_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hoisted(["run", "--shard", "first", "-v"]) == ["--shard", "first", "-v", "run"]
    assert hoisted(["run", "--shard=first"]) == ["--shard=first", "run"]
    path = tmp_path / "cdc.toml"
    path.write_text(DIVIDED)
    assert run(["--config", str(path), "wait", "cache", "0/1", "--shard", "first"]) == Exit.USAGE
    assert "cdc wait takes no --shard" in capsys.readouterr().err
    assert run(["config", "lint", "--config", str(path)]) == Exit.OK
