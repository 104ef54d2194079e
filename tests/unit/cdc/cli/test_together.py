"""Parts that are started, looked after and ended, with small programs in place of commands."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc.cli.pipeline_processes import (
    Children,
    Part,
    PipelineProcesses,
    StepFailed,
    interruptible,
    parts_of,
    shorten,
    slot_to_make,
)
from cdc.process.errors import CdcError, Exit, SourceError
from cdc.record.ports import Unknown
from cdc.settings.model import Settings, parse
from tests.waiting import wait_until

DOCUMENT = {
    "name": "shop",
    "source": {"dsn": "host=none", "tables": ["public.*"]},
    "log": {"bootstrap_servers": "kafka:9092"},
}
SLOW, QUICK = Part(("slow",), 20.0), Part(("quick",), 20.0)
PROGRAM = """
import os, signal, sys
from pathlib import Path
name, folder = sys.argv[-1], Path(sys.argv[2]).parent
def end(*_):
    with (folder / "ends").open("a") as ends: ends.write(name + "\\n")
    sys.exit(0)
def fail(*_):
    print("error: the disk is full", file=sys.stderr)
    sys.exit(83)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, fail)
if (folder / (name + ".fails")).exists(): fail()
(folder / (name + ".new")).write_text(str(os.getpid()))
(folder / (name + ".new")).rename(folder / (name + ".ready"))
while True: signal.pause()
"""


@pytest.fixture
def together(tmp_path: Path) -> Iterator[PipelineProcesses]:
    """Two parts that run until they are asked to end, or told to fail."""
    said: list[str] = []
    program = (sys.executable, "-I", "-S", "-c", PROGRAM)
    with Children(tmp_path / "cdc.toml", tmp_path, {}, program=program) as children:
        made = PipelineProcesses(children, (SLOW, QUICK), said.append)
        made.start("slow", "quick")
        wait_until(lambda: (tmp_path / "slow.ready").exists() and (tmp_path / "quick.ready").exists(), 30)
        yield made


def fail(folder: Path, name: str) -> None:
    """Have a running part end with an error."""
    os.kill(int((folder / f"{name}.ready").read_text()), signal.SIGUSR1)


def settings_of(**more: object) -> Settings:
    return parse({**DOCUMENT, **more})


def test_parts_end_in_the_order_of_the_data(together: PipelineProcesses, tmp_path: Path) -> None:
    together.look()
    together.end()
    assert (tmp_path / "ends").read_text().split() == ["slow", "quick"]


def test_a_part_that_ends_is_told_with_its_code_and_last_words(together: PipelineProcesses, tmp_path: Path) -> None:
    fail(tmp_path, "quick")

    def ended() -> bool:
        try:
            together.look()
        except CdcError as failure:
            return failure.exit is Exit.ACTIVE and "the disk is full" in failure.message
        return False

    wait_until(ended, 30)
    assert together.end_quietly() is not None
    assert (tmp_path / "ends").read_text().split() == ["slow"], "the other one was asked"


def test_a_part_s_end_is_seen_beside_a_command(together: PipelineProcesses, tmp_path: Path) -> None:
    """While a snapshot runs for hours, a sink may end."""
    fail(tmp_path, "slow")
    with pytest.raises(CdcError, match="cdc slow ended with exit code 83"):
        together.must("snapshot")


def test_a_command_s_own_code_is_kept(together: PipelineProcesses, tmp_path: Path) -> None:
    (tmp_path / "check.fails").touch()
    with pytest.raises(StepFailed, match="cdc check ended with exit code 83") as failed:
        together.must("check")
    assert failed.value.exit is Exit.ACTIVE


def test_an_earlier_child_s_words_are_not_told_as_this_one_s(tmp_path: Path) -> None:
    """The file is appended to. A child that was killed said nothing, and the one before it had another cause."""
    (tmp_path / "slow.log").write_text("error: the slot is lost\n", encoding="utf-8")
    program = (sys.executable, "-I", "-S", "-c", PROGRAM)
    with Children(tmp_path / "cdc.toml", tmp_path, {}, program=program) as children:
        child = children.start("slow")
        wait_until((tmp_path / "slow.ready").exists, 30)
        os.kill(child.process.pid, signal.SIGKILL)
        child.process.wait(30)
        with pytest.raises(CdcError) as ended:
            child.require_running()
    assert ended.value.message == "cdc slow was ended by SIGKILL"
    assert ended.value.exit is Exit.UNAVAILABLE


def test_what_a_part_prints_is_kept_in_two_files(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    with log.open("a") as printed:
        for line in range(3):
            print(f"line {line}", file=printed, flush=True)
            shorten(log, most_bytes=10)
    assert (log.read_text(), (tmp_path / "run.log.1").read_text()) == ("line 2\n", "line 0\nline 1\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_goes_is_as_ctrl_c(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None):
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        with interruptible((tmp_path / "killed").touch) as ending:
            ending()
            signal.raise_signal(signal.SIGINT)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert (tmp_path / "killed").exists()


def test_the_parts_are_those_of_the_settings() -> None:
    views = {"orders": {"sql": "select 1"}}
    sinks = {"cache": {"kind": "redis", "url": "redis://x"}}
    names = [[part.arguments for part in parts_of(settings)] for settings in (settings_of(), settings_of(sinks=sinks))]
    assert names == [[("run",)], [("run",), ("sink",)]]
    events = {"paid": {"topic": "shop.outbox.Order", "time": "at", "schema": "at timestamp"}}
    streams = {"paid": {"sql": "paid.sql", "key": ["begin"], "events": events}}
    whole = parts_of(settings_of(sinks=sinks, views=views, streams=streams))
    assert [part.arguments[0] for part in whole] == ["run", "view", "stream", "sink"]


def test_h109_an_unknown_slot_is_not_taken_for_absent() -> None:
    with pytest.raises(SourceError, match="does not answer"):
        slot_to_make(settings_of(), Unknown(SourceError("Postgres does not answer")))
