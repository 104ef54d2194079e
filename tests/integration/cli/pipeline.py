"""A settings file for a test, and what a refusal has to look like."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.process.errors import Exit
from cdc.settings.model import load
from cdc.wiring.pipeline import build_snapshot, prepare_pipeline
from snapshot.source.ports import NoReport
from tests.programs import RunCdc
from tests.settings_file import write_settings


class Pipeline:
    """A folder with a settings file, and the commands run in it."""

    def __init__(self, folder: Path, run_cdc: RunCdc, document: dict[str, Any]) -> None:
        self.folder = folder
        self.document = document
        self._run = run_cdc

    @property
    def dsn(self) -> str:
        """The source's connection string."""
        return str(self.document["source"]["dsn"])

    @property
    def config(self) -> Path:
        """The settings file, written anew with what the document says now."""
        return write_settings(self.folder, self.document)

    def sql(self, *statements: str) -> None:
        """Run statements, each by itself."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def cdc(self, *arguments: str, timeout_s: float = 90.0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return self._run("--config", self.config, *arguments, timeout_s=timeout_s, env=environment, cwd=self.folder)

    def good(self, *arguments: str) -> str:
        """Run a command that has to succeed; its stdout."""
        done = self.cdc(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin(self) -> None:
        """What ``cdc init`` and ``cdc snapshot`` do, in this process: as commands they would start three more."""
        settings = load(self.config, dict(os.environ))
        prepare_pipeline(settings)
        build_snapshot(settings, NoReport(), workers=1).run()


def act_as(pipeline: Pipeline, role: str, *statements: str) -> None:
    """Run the statements as the owner, then make the pipeline log in as ``role``, its password in SECRET."""
    pipeline.sql(*(statement.format(role=role) for statement in statements))
    parts = {name: value for name, value in conninfo_to_dict(pipeline.dsn).items() if name != "passfile"}
    pipeline.document["source"] |= {"dsn": make_conninfo("", **(parts | {"user": role})), "password": "env:SECRET"}


def assert_refused(done: subprocess.CompletedProcess[str], code: Exit, *words: str) -> None:
    """One sentence, a hint, the exit code, no traceback; ``words`` in the sentence or the hint."""
    said = done.stderr.strip().splitlines()
    errors = [line for line in said if line.startswith("error: ")]
    hints = [line for line in said if line.startswith("hint: ")]
    assert done.returncode == code, done.stdout + done.stderr
    assert len(errors) == 1, done.stderr
    assert len(hints) == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for word in words:
        assert word in errors[0] + hints[0], f"{word!r} is not in: {errors[0]} / {hints[0]}"
