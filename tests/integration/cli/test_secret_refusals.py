"""No refusal shows a secret. Here commands are forked: what counts is what they print (see ``test_secrets.py``)."""

from __future__ import annotations

import pytest

from tests.integration.cli.pipeline import Pipeline

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
@pytest.mark.parametrize("command", REFUSED)
def test_no_refusal_shows_a_secret(canary: str, pipeline: Pipeline, no_server: str, command: str) -> None:
    right = pipeline.document["log"]["bootstrap_servers"]
    for password, broker in ((f"wrong{canary}", right), (canary, f"127.0.0.1:{no_server}")):
        pipeline.document["log"]["bootstrap_servers"] = broker
        done = pipeline.cdc("-vv", *command.split(), SECRET=password)
        assert done.returncode != 0
        assert canary not in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
