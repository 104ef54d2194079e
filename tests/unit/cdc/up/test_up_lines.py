"""``cdc up`` in a pipe: a line now and then, and a look for the page meanwhile."""

from __future__ import annotations

import pytest

from cdc.cli.up import Telling, lines
from cdc.clock import ManualClock
from cdc.errors import CdcError
from cdc.settings import LimitSettings
from cdc.status.live_looks import LiveLook
from cdc.status.rules import Status, status_of
from tests.unit.cdc.status.test_rules import FACTS


class Parts:
    """Parts that run for ``left`` looks after them."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.looks = 0

    def look(self) -> Status:
        self.looks += 1
        return status_of(FACTS, LimitSettings())

    def alive(self) -> None:
        self.left -= 1
        if not self.left:
            raise CdcError("cdc run ended")


@pytest.mark.parametrize(("served", "looks"), [(False, 3), (True, 40)])
def test_each_part_is_asked_once_a_line_or_for_the_page(served: bool, looks: int) -> None:
    """In eighty seconds."""
    parts, said, seen = Parts(40), list[str](), list[LiveLook]()
    with pytest.raises(CdcError, match="cdc run ended"):
        lines(parts.look, parts.alive, Telling(said.append, seen.append if served else None), ManualClock())
    assert said == ["log 50 B behind  cache 0/5F5E0CE 0.0 s"] * 3
    assert (parts.looks, len(seen)) == (looks, looks if served else 0)
    assert not served or seen[-1].pace is not None
