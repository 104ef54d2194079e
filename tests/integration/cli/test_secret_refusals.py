"""No refusal shows a secret. Here commands are forked: what counts is what they print (see ``test_secrets.py``)."""

from __future__ import annotations

import pytest

from tests.integration.cli.pipeline import Pipeline
from tests.programs import Spawn

REFUSED = (
    "check",
    "init",
    "init --new-epoch --yes",
    "run",
    "snapshot",
    "snapshot public.orders --where id=1",
    "status",
    "verify",
    "verify --repair",
    "wait cache 0/1",
    "events",
    "sink",
    "dead list",
    "dead retry",
    "rebuild cache",
    "drop --yes --topics",
)


@pytest.mark.slow
def test_no_refusal_shows_a_secret(canary: str, pipeline: Pipeline, no_server: str, spawn: Spawn) -> None:
    """All at once: a refused login is tried for a quarter of a minute."""
    right = pipeline.document["log"]["bootstrap_servers"]
    for password, broker in ((f"wrong{canary}", right), (canary, f"127.0.0.1:{no_server}")):
        pipeline.document["log"]["bootstrap_servers"] = broker
        words, env = ("cdc", "--config", pipeline.config, "-vv"), {"SECRET": password}
        for done in [spawn(*words, *command.split(), env=env) for command in REFUSED]:
            assert done.wait(90) != 0
            assert canary not in done.stdout + done.stderr
            assert "Traceback" not in done.stdout + done.stderr
