"""Answers of a search server that stand within an answer of 200."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import orjson
import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import Exit, Retry, SinkError
from sinks.contract.port import StoreAway
from sinks.search.search_bulk import BulkWriter, Item
from sinks.search.search_client import SearchClient
from sinks.search.search_documents import action

TEXTS = (b"a", b"b", b"hang", b"c")


class _Answers(BaseHTTPRequestHandler):
    kind = ""
    asked = 0
    shards: ClassVar[dict[str, int]] = {}
    whole = True
    over = threading.Event()

    def do_GET(self) -> None:
        self._say({"version": {"distribution": "opensearch"}})

    def do_POST(self) -> None:
        type(self).asked += 1
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path.startswith("/_bulk"):
            self._bulk(body)
            return
        if self.path.endswith("/_refresh"):
            self._say({"_shards": self.shards})
        elif "/_search?" in self.path:
            assert "allow_partial_search_results=false" in self.path
            self._say({}, 200 if self.whole else 503)
        else:
            self._say({"docs": [{"_id": "1", "error": {"type": self.kind, "reason": "no permissions"}}]})

    def _bulk(self, body: bytes) -> None:
        if b"hang" in body:
            assert self.over.wait(30)
        self._say({"items": [{"index": {"status": 201}}] * (body.count(b"\n") // 2)})

    def _say(self, document: object, status: int = 200) -> None:
        body = orjson.dumps(document)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def answers() -> Iterator[type[_Answers]]:
    handler = type("Answers", (_Answers,), {"over": threading.Event()})
    yield handler


@contextmanager
def client_of(answers: type[_Answers]) -> Iterator[SearchClient]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        with closing(SearchClient(url, None, None, None, ManualClock(), timeout_s=2)) as client:
            yield client
    finally:
        answers.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def refusal(answers: type[_Answers]) -> SinkError:
    with client_of(answers) as client, pytest.raises(SinkError) as found:
        client.documents("/index", ["1"])
    return found.value


def test_h306_a_right_that_lacks_is_not_taken_for_busy(answers: type[_Answers]) -> None:
    """Asked again and again, it would be a server that is away, for ever."""
    answers.kind = "security_exception"
    refused = refusal(answers)
    assert (refused.exit, refused.retry, answers.asked) == (Exit.CONFIG, Retry.NEVER, 1)
    assert "security_exception" in refused.message


def test_w5_an_id_that_no_document_can_have_is_absent(answers: type[_Answers]) -> None:
    answers.kind = "illegal_argument_exception"
    with client_of(answers) as client:
        assert [one.get("found") for one in client.documents("/index", [""])] == [None]
    assert answers.asked == 1


def test_a_shard_that_is_away_is_asked_for_again(answers: type[_Answers]) -> None:
    answers.kind = "no_shard_available_action_exception"
    assert isinstance(refusal(answers), StoreAway)
    assert answers.asked > 1


@pytest.mark.parametrize(
    ("shards", "whole"),
    [
        ({"total": 2, "successful": 1, "failed": 1}, True),
        # As OpenSearch 3.8 answers for a shard that is nowhere.
        ({"total": 4, "successful": 2, "failed": 0}, False),
    ],
)
def test_h590_a_shard_that_shows_nothing_is_waited_for(
    answers: type[_Answers], shards: dict[str, int], whole: bool
) -> None:
    """The sink claimed what a search did not show."""
    answers.shards, answers.whole = shards, whole
    with client_of(answers) as client, pytest.raises(StoreAway):
        client.refresh("/index")
    assert answers.asked > 2


@pytest.mark.parametrize("total", [2, 4])
def test_h590_a_replica_without_a_node_hides_nothing(answers: type[_Answers], total: int) -> None:
    answers.shards = {"total": total, "successful": 2, "failed": 0}
    with client_of(answers) as client:
        client.refresh("/index")
    assert answers.asked == total // 2


def test_y2_a_document_without_an_answer_is_found(answers: type[_Answers], caplog: pytest.LogCaptureFixture) -> None:
    """As OpenSearch 3.8 with many objects in each other: the thread dies, and nobody answers for it."""
    items = [Item(n, action(str(n), "0" * 32, b'"shop"') + b'{"doc":"%b"}\n' % text) for n, text in enumerate(TEXTS)]
    with client_of(answers) as client, closing(BulkWriter(client, ManualClock())) as writer:
        fates = writer.write(iter(items))
    assert fates.refused.keys() == {2}
    # The whole body twice, a half, and the one.
    assert [one.message for one in caplog.records if one.name == "headrace.sinks"].count("bulk_unanswered") == 4
