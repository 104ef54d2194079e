"""A sample of the decoder's experiment, and that its own tools are right."""

from __future__ import annotations

import random

import pytest

from connectors.postgres.protocol.pgoutput import decode
from tests.faults.experiments.decoder import trial
from tests.faults.recorded import fields, messages, stands_for

EACH = 6
ENOUGH = 350
"""A minute of it, on a machine that does nothing else."""


def test_every_recorded_message_is_written_again_as_it_was() -> None:
    assert {chr(message[0]) for message in messages()} == set("BCRYIUDTMO")
    for message in messages():
        assert stands_for(decode(message), message)
        assert sum(piece.width for piece in fields(message)) == len(message)


@pytest.mark.slow
@pytest.mark.parametrize("kind", "BCRYIUDTMO")
def test_changed_messages_of_each_kind_are_refused_or_right(kind: str) -> None:
    own = [message for message in messages() if chr(message[0]) == kind]
    seed = random.SystemRandom().randrange(1 << 30)
    for number, message in enumerate(random.Random(seed).sample(own, min(EACH, len(own)))):
        figures = trial(seed + number, message)
        assert 0 < figures["refused"] < figures["inputs"], f"seed {seed}"


@pytest.mark.long
def test_changed_messages_are_refused_or_say_what_they_say() -> None:
    counted = [trial(seed) for seed in range(ENOUGH)]
    assert sum(figures["inputs"] for figures in counted) > 10_000 * ENOUGH
    assert all(0 < figures["refused"] < figures["inputs"] for figures in counted)
