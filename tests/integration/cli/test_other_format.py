"""A state topic of another format: a command that reads it ends in one sentence with its own code (H113)."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
import pytest

from cdc.process.errors import Exit
from cdc.record.state import Document, SlotState, SnapshotState, TopicsState
from cdc.settings.model import parse
from cdc.wiring import open_state
from tests.integration.cli.pipeline import Pipeline

COMMANDS = ("check", "init", "snapshot", "run", "status")
KINDS: dict[type[Document], tuple[str, ...]] = {
    TopicsState: COMMANDS,
    SlotState: COMMANDS,
    SnapshotState: ("run", "snapshot", "status"),
}


@pytest.mark.slow
def test_h113_commands_refuse_a_state_topic_of_another_format(pipeline: Pipeline) -> None:
    for command in ("init", "snapshot"):
        pipeline.good(command)
    state = open_state(parse(pipeline.document))
    documents = state.read()
    for kind, commands in KINDS.items():
        key = orjson.dumps({"what": kind.WHAT})
        state.write([(key, orjson.dumps({**orjson.loads(documents[key]), "format": 1000, "grown": [1]}))])
        sentence = f"the {kind.WHAT} document in the state topic has the format 1000, and this Headrace reads"
        assert refusals(pipeline, commands, sentence) == {}
        state.write([(key, documents[key])])
    pipeline.good("check")


def refusals(pipeline: Pipeline, commands: Iterable[str], sentence: str) -> dict[str, str]:
    """Output of each command that did not end with the code and that one sentence."""
    others = {}
    for command in commands:
        done = pipeline.cdc(command)
        errors = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "Traceback"))]
        if done.returncode != Exit.FORMAT or len(errors) != 1 or sentence not in errors[0]:
            others[command] = f"{done.returncode} {done.stderr}"
    return others
