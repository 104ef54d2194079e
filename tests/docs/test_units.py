"""The units of systemd: valid, closed, and of one mind with the exit codes and with how long an end takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.cli.app import COMMANDS
from cdc.process.errors import Exit
from cdc.settings.model import CaptureSettings
from spark.session.failures import GRACE_S

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "compose" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
EXPOSURE = 2.0
AGAIN = {Exit.UNAVAILABLE, Exit.ACTIVE}
"""Codes of an end that time can mend."""


def told(unit: Path, name: str) -> str:
    """The setting's last value."""
    values: list[str] = re.findall(rf"^{name}=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    return values[-1]


@pytest.fixture(params=UNITS, ids=lambda unit: unit.name)
def unit(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def analyze(tmp_path: Path, unit: Path) -> str:
    """The validator. The unit is beside it, with this environment's program."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze on this machine: apt-get install systemd")
    text = unit.read_text(encoding="utf-8").replace("/opt/headrace/bin/cdc", str(Path(sys.executable).with_name("cdc")))
    (tmp_path / unit.name).write_text(text, encoding="utf-8")
    return program


def test_a_unit_is_valid(analyze: str, unit: Path, tmp_path: Path) -> None:
    instance = tmp_path / unit.name.replace("@", "@shop")
    done = subprocess.run([analyze, "verify", "--man=no", instance], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_unit_may_do_little(analyze: str, unit: Path, tmp_path: Path) -> None:
    command = [analyze, "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE * 10:.0f}"]
    done = subprocess.run([*command, tmp_path / unit.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:]


def test_a_unit_starts_again_where_time_can_mend(unit: Path) -> None:
    """The codes are those of the manual, and all that a person has to look at."""
    kept = {int(code) for code in told(unit, "RestartPreventExitStatus").split()}
    assert kept == {int(code) for code in Exit if code >= Exit.USAGE} - AGAIN
    assert told(unit, "Restart") == "on-failure"
    assert told(unit, "StartLimitIntervalSec") == "0"
    manual = (ROOT / "cdc" / "README.md").read_text(encoding="utf-8")
    assert f"`RestartPreventExitStatus={told(unit, 'RestartPreventExitStatus')}`" in manual


def test_a_unit_gives_an_end_its_time(unit: Path) -> None:
    needed_s = {
        "headrace-run@.service": CaptureSettings().drain_timeout.total_seconds(),
        "headrace-sink@.service": 2 * GRACE_S,
        "headrace-view@.service": 0.0,
        "headrace-stream@.service": 2 * GRACE_S,
    }
    assert float(told(unit, "TimeoutStopSec")) >= needed_s[unit.name] + 20


def test_each_process_that_runs_for_months_has_a_unit() -> None:
    commands = {told(unit, "ExecStart").split(".toml ")[1] for unit in UNITS}
    assert commands == {"run", "sink", "view run", "stream run"}
    assert {command.split()[0] for command in commands} <= {entry.name for entry in COMMANDS}


def test_no_two_units_share_a_folder() -> None:
    folders = [told(unit, "StateDirectory") for unit in UNITS]
    assert len(set(folders)) == len(UNITS)
    assert all(told(unit, "WorkingDirectory") == f"/var/lib/{told(unit, 'StateDirectory')}" for unit in UNITS)


def test_the_manual_has_each_unit() -> None:
    manual = (FOLDER / "README.md").read_text(encoding="utf-8")
    for unit in UNITS:
        command, end_s = told(unit, "ExecStart").split(".toml ")[1], told(unit, "TimeoutStopSec")
        assert f"| `{unit.stem}` | `cdc {command}` | {end_s} s" in manual
