"""The command's frame: what is listed, what is loaded, how errors are shown."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cdc import __version__
from cdc.cli.app import COMMANDS, run
from cdc.cli.terminal import report
from cdc.process.errors import CdcError, ConfigError, Exit
from cdc.settings.model import parse

CONFIG = 'name = "shop"\n[source]\ndsn = "host=127.0.0.1"\ntables = ["a.b"]\n[log]\nbootstrap_servers = "k:1"\n'


def test_help_lists_the_commands_in_life_cycle_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == run(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"│ {entry.name} ") for entry in COMMANDS if f"│ {entry.name} " in shown]
    assert places == sorted(places)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"headrace {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["chek"], "there is no command chek", "did you mean cdc check?"),
        (["zzz"], "there is no command zzz", "cdc --help lists the commands"),
        (["--bogus"], "no such option: --bogus", "cdc --help shows how"),
        (["verify", "--bogus"], "no such option: --bogus", "cdc verify --help shows how"),
        (["wait", "cache"], "missing argument 'LSN'", "cdc wait --help shows how"),
        (["config", "exmple"], "no such command 'exmple'", "cdc config --help shows how"),
        (["wait", "cache", "16B3D48"], "16B3D48 is not an LSN", "select pg_current_wal_insert_lsn()"),
        (["wait", "0/1", "cache"], "cache is not an LSN", "it looks like 0/16B3D48"),
        (["status", "extra"], "unexpected extra argument", "cdc status --help shows how"),
        (["verify", "--timeout", "-1"], "invalid value for '--timeout'", "cdc verify --help shows how"),
        (["dead", "show", "x"], "missing argument", "cdc dead show --help shows how"),
    ],
)
def test_a_command_that_does_not_fit_is_one_sentence_and_a_hint(
    arguments: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == Exit.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.strip().splitlines()
    assert len(lines) == 2
    assert error.lower() in lines[0].lower()
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]


def test_h550_a_group_without_a_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["view"]) == Exit.USAGE
    said = capsys.readouterr()
    assert "rebuild" in said.out
    assert said.err == "error: cdc view takes one of the commands above\nhint: cdc view --help shows how\n"


def test_no_settings_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path / "none.toml"), "config", "lint"]) == Exit.CONFIG
    assert "there is no settings file" in capsys.readouterr().err


def test_of_two_settings_files_the_last_one_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", "first.toml", "config", "lint", "--config", str(tmp_path / "last.toml")]) == Exit.CONFIG
    assert "last.toml" in capsys.readouterr().err


def test_connect_without_a_debezium_section_names_the_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cdc.toml"
    path.write_text(CONFIG.replace("[source]", '[source]\nkind = "debezium"'))
    assert run(["config", "lint", "--config", str(path)]) == 0
    assert "there is no [debezium] section: Kafka Connect is asked at http://127.0.0.1:8083" in capsys.readouterr().err


def test_libraries_do_not_log_beside_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cdc.toml"
    path.write_text(CONFIG)
    for flags, level in (([], "off"), (["-v"], "off"), (["-vv"], None)):
        monkeypatch.delenv("RUST_LOG", raising=False)
        run(["config", "lint", "--config", str(path), *flags])
        assert os.environ.get("RUST_LOG") == level


def test_the_settings_file_may_be_named_behind_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cdc.toml"
    path.write_text(CONFIG)
    assert run(["config", "lint", "--config", str(path)]) == 0
    assert run(["config", "lint", f"--config={path}"]) == 0
    assert "is good" in capsys.readouterr().err


def shown(failure: BaseException, **settings: object) -> tuple[int, str]:
    text = StringIO()
    loaded = parse(
        {
            "name": "shop",
            "source": {"dsn": "host=h dbname=d password=canary-in-dsn", "tables": ["a.b"], **settings},
            "log": {"bootstrap_servers": "k:1"},
            "sinks": {"cache": {"kind": "redis", "url": "redis://:canary%2Furl@h"}},
        }
    )
    if loaded.source.password is not None:
        loaded.source.password.reveal()
    code = report(failure, Console(file=text, width=60))
    return code, text.getvalue()


def test_an_error_of_ours_is_its_sentence_its_hint_and_its_code() -> None:
    code, text = shown(ConfigError("wal_level is [replica]\nreally", hint="alter system set wal_level = 'logical';"))
    assert code == 78
    assert text == "error: wal_level is [replica] really\nhint: alter system set wal_level = 'logical';\n"


def test_an_error_without_a_hint_has_no_hint_line() -> None:
    assert shown(CdcError("broken", exit=Exit.DIFFERENCE)) == (1, "error: broken\n")


def test_a_bug_leaves_its_traceback_in_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    secret = tmp_path / "secret"
    secret.write_text("canary-in-file")
    text = subprocess.run(
        [
            sys.executable,
            "-c",
            "from tests.unit.cdc.cli.test_app import shown\n"
            f"code, text = shown(RuntimeError('canary-in-file canary-in-dsn canary/url'), password='file:{secret}')\n"
            "print(code); print(text)",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[4],
    ).stdout
    assert text.startswith("70\nerror: RuntimeError where none was expected; the traceback is in ")
    assert "Traceback" not in text
    (log,) = tmp_path.glob("cdc-bug-*.log")
    assert str(log) in text
    assert log.stat().st_mode & 0o077 == 0
    kept = log.read_text()
    assert "RuntimeError: *** *** ***" in kept
    assert "canary" not in text + kept


def test_help_loads_no_client_library() -> None:
    code = (
        "import sys; from cdc.cli.app import run; run(['--help']);"
        "print([m for m in ('pyarrow', 'numpy', 'pyspark', 'deltalake', 'sqlalchemy', 'redis')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m cdc config example | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_question_to_nobody_is_one_sentence(tmp_path: Path) -> None:
    settings = tmp_path / "cdc.toml"
    settings.write_text(CONFIG + '[views.docs]\nsql = "docs.sql"\n')
    command = [sys.executable, "-m", "cdc", "--config", str(settings), "view", "drop", "docs"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.USAGE
    assert done.stderr.splitlines()[-2:] == [
        "error: this asks for an answer, and there is nobody to give one",
        "hint: answer in a terminal. --help says how to go without",
    ]
