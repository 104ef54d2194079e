"""What becomes of each item of a bulk body, by what the server answers to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from cdc.process.clock import ManualClock
from sinks.contract.port import StoreAway
from sinks.search.search_bulk import BulkWriter, Fates, Item
from sinks.search.search_client import BulkUnanswered, Conflict, IndexBlocked, IndexGone

Answer = Callable[[int, int], tuple[int, str]]
"""(number of the item, how often it was sent) -> status and type of error."""


class Server:
    """Answers by a rule; takes no body that has a broken item in it, and answers none that has a silent one."""

    store = "the search server"

    def __init__(
        self,
        answer: Answer,
        broken: frozenset[int] = frozenset(),
        silent: frozenset[int] = frozenset(),
        away: bool = False,
    ) -> None:
        self._answer = answer
        self._broken = broken
        self._silent = silent
        self._away = away
        self.sent: dict[int, int] = {}
        self.bodies = 0
        self.waits: list[bool] = []

    def takes(self, lines: bytes) -> bool:
        return not self._away

    def bulk(self, body: bytes, *, part: bool = False) -> list[dict[str, Any]]:
        self.bodies += 1
        numbers = [int(line) for line in body.split()]
        if self._silent & set(numbers):
            self.waits.append(part)
            raise BulkUnanswered("no answer")
        if self._broken & set(numbers):
            raise Conflict("HTTP 400", kind="illegal_argument_exception")
        return [self._item(number) for number in numbers]

    def _item(self, number: int) -> dict[str, Any]:
        self.sent[number] = self.sent.get(number, 0) + 1
        status, kind = self._answer(number, self.sent[number])
        return {"status": status, **({"error": {"type": kind, "reason": "[1]"}} if kind else {})}


def written(server: Server, count: int = 3) -> Fates:
    def items() -> Iterator[Item]:
        for number in range(count):
            yield Item(number, b"%d\n" % number)

    with closing(BulkWriter(server, ManualClock())) as writer:
        return writer.write(items())


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_h67_an_item_the_server_is_too_busy_for_is_sent_again(status: int) -> None:
    kind = "rejected_execution_exception"
    server = Server(lambda number, times: (status, kind) if number == 1 and times < 4 else (201, ""))
    assert written(server) == Fates()
    assert server.sent == {0: 1, 1: 4, 2: 1}


def test_h100_a_server_that_stays_too_busy_is_away() -> None:
    server = Server(lambda number, times: (429, "rejected_execution_exception"))
    with pytest.raises(StoreAway, match="takes no more documents"):
        written(server)
    assert server.sent[0] == 10


def test_what_the_index_refuses_is_told_from_what_is_older() -> None:
    answers = {0: (409, "version_conflict_engine_exception"), 1: (400, "mapper_parsing_exception"), 2: (200, "")}
    server = Server(lambda number, times: answers[number])
    assert written(server) == Fates(stale={0}, refused={1: "the index refuses it: mapper_parsing_exception"})


@pytest.mark.parametrize("broken", [{0}, {6}, {2, 3, 5}, set(range(7))])
def test_h101_an_unreadable_body_is_halved_to_find_its_items(broken: set[int]) -> None:
    server = Server(lambda number, times: (201, ""), frozenset(broken))
    fates = written(server, 7)
    assert fates.refused.keys() == broken
    assert server.sent == dict.fromkeys(set(range(7)) - broken, 1)


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (404, "index_not_found_exception", IndexGone),
        (403, "cluster_block_exception", IndexBlocked),
        (429, "cluster_block_exception", IndexBlocked),
        (400, "index_closed_exception", IndexBlocked),
    ],
)
def test_h100_what_is_wrong_with_the_index_is_no_item_s_fault(status: int, kind: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        written(Server(lambda number, times: (status, kind)))


def test_h100_a_cluster_without_a_leader_is_waited_for() -> None:
    server = Server(lambda number, times: (503, "cluster_block_exception") if times < 3 else (201, ""))
    assert written(server) == Fates()


@pytest.mark.parametrize("silent", [{0}, {6}, {2, 5}])
def test_y2_a_body_without_an_answer_is_halved_too(silent: set[int]) -> None:
    server = Server(lambda number, times: (201, ""), silent=frozenset(silent))
    fates = written(server, 7)
    assert fates.refused == dict.fromkeys(
        silent, "the server does not answer a request that holds it, and answers others"
    )
    assert server.sent == dict.fromkeys(set(range(7)) - silent, 1)
    assert server.waits[0] is False
    assert all(server.waits[1:]), "parts are waited for shortly"


def test_y2_a_server_that_answers_nothing_is_away() -> None:
    server = Server(lambda number, times: (201, ""), silent=frozenset({0}), away=True)
    with pytest.raises(StoreAway):
        written(server)
    assert server.waits == [False], "no document is blamed"
