"""``GET /wait`` over real HTTP: each answer, bounded in time and in number, and from the store itself."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson
import pytest

from cdc.freshness.run import POLLERS
from cdc.process.clock import SYSTEM_CLOCK
from cdc.process.errors import SinkError
from cdc.record.progress import Hold, Watermark
from cdc.record.source_lineage import SourceLineage
from sinks.contract.kinds import spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from spark.figures.sink_metrics import Metrics
from spark.runner.wait_page import LONGEST_S, MOST, WaitPage
from tests.waiting import wait_until

SHOWN = Watermark(
    epoch=3,
    lsn=0x50,
    lineage=SourceLineage("7", 2, ((1, 0x40),)),
    topic_ids={"shop.public.a": "1", "shop.public.b": "2"},
)


class Served:
    """The port of an application that feeds one SQLite store."""

    def __init__(self, folder: Path) -> None:
        self.spec = spec_for("sql", prefix="shop", options={"url": f"sqlite:///{folder}/store.db"})
        self.away: SinkError | None = None
        self.connected = 0
        self.page = WaitPage({"reports": self.spec, "other": replace(self.spec, prefix="other")}, self._connect)
        server = Metrics(SYSTEM_CLOCK, "shop").serve("127.0.0.1:0", {"/wait": self.page.answer})
        assert server is not None
        self.server = server

    def _connect(self, spec: SinkSpec) -> OpenSink:
        self.connected += 1
        if self.away is not None:
            raise self.away
        return open_sink(spec)

    def commit(self, watermark: Watermark) -> None:
        with contextlib.closing(open_sink(self.spec)) as store:
            store.commit(watermark)

    def get(self, query: str) -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{self.server.port}/wait?{query}", timeout=60) as answer:
                return answer.status, orjson.loads(answer.read())
        except HTTPError as refused:
            with refused:
                return refused.code, orjson.loads(refused.read())

    def wait(self, lsn: str, timeout: float = 0.2, **more: str) -> tuple[int, dict[str, Any]]:
        return self.get(urlencode({"sink": "reports", "lsn": lsn, "timeout": timeout, **more}))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    made.commit(SHOWN)
    yield made
    made.server.close()
    made.page.close()
    assert len(POLLERS) == 0


@pytest.mark.parametrize("lsn", ["7/2:0/50", "7/1:0/40", "0/50&epoch=3", "0/1&epoch=3"])
def test_a_store_that_shows_it_is_said_with_its_server(served: Served, lsn: str) -> None:
    assert served.get(f"sink=reports&lsn={lsn}&timeout=20") == (
        HTTPStatus.OK, {"shown": True, "lsn": "0/50", "epoch": 3, "lineage": "7/2"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lsn", "words"),
    [
        ("7/2:0/51", "reports stands at 0/50, and the token at 0/51; waited 0.2 s"),
        ("0/51&epoch=3", "reports stands at 0/50 of epoch 3, and the LSN is 0/51 of epoch 3; waited 0.2 s"),
        ("0/1&epoch=2", "reports stands at 0/50 of epoch 3, and the LSN is 0/1 of epoch 2; waited 0.2 s"),
        ("7/2:0/50&tables=public.c", "reports does not read public.c; waited 0.2 s"),
        ("7/2:0/50&tables=public.a,public.c", "reports does not read public.c; waited 0.2 s"),
    ],
)
def test_past_the_time_it_says_where_the_store_stands(served: Served, lsn: str, words: str) -> None:
    status, said = served.get(f"sink=reports&lsn={lsn}&timeout=0.2")
    assert (status, said["shown"], said["reason"]) == (HTTPStatus.GATEWAY_TIMEOUT, False, words)


def test_it_answers_while_it_waits(served: Served) -> None:
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(served.wait, "7/2:0/60", 30)
        wait_until(lambda: served.connected, 20)
        served.commit(replace(SHOWN, lsn=0x60))
        assert answer.result(60)[0] == HTTPStatus.OK


def test_waiting_that_is_of_no_use_is_said_at_once(served: Served) -> None:
    status, said = served.wait("7/1:0/41", LONGEST_S)
    assert (status, said["reason"]) == (
        HTTPStatus.CONFLICT, "a promotion left 7/1:0/41 behind: its commit may be lost, and reports never shows it",
    )  # fmt: skip
    assert served.wait("8/1:0/1", LONGEST_S)[0] == HTTPStatus.CONFLICT
    hold = Hold(table="public.a", reason="public.a: no column takes it")
    served.commit(replace(SHOWN, held={"shop.public.a": hold}))
    assert served.wait("7/2:0/50", LONGEST_S)[0] == HTTPStatus.CONFLICT
    assert served.wait("7/2:0/50", LONGEST_S, tables="public.b")[0] == HTTPStatus.OK
    assert served.wait("7/2:0/50", LONGEST_S, tables="public.b,public.a")[0] == HTTPStatus.CONFLICT


def test_a_store_that_was_emptied_shows_nothing(served: Served) -> None:
    assert served.wait("7/2:0/50", 20)[0] == HTTPStatus.OK
    with contextlib.closing(open_sink(served.spec)) as store:
        store.watermarks.write(replace(SHOWN, lsn=0))
    assert served.wait("7/2:0/50")[0] == HTTPStatus.GATEWAY_TIMEOUT


def test_a_store_that_is_away_is_said_so(served: Served) -> None:
    served.away = SinkError("the database is away")
    assert served.wait("7/2:0/50", 20) == (
        HTTPStatus.SERVICE_UNAVAILABLE, {"shown": False, "reason": "the database is away", "hint": ""},
    )  # fmt: skip
    served.away = None
    assert served.wait("7/2:0/50", 20)[0] == HTTPStatus.OK


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400), ("sink=reports", 400), ("lsn=0/1", 400), ("sink=reports&lsn=0/1&epoch=1&force=1", 400),
        ("sink=reports&lsn=7/1:0/1&lsn=7/1:0/2", 400), ("sink=reports&lsn=x", 400), ("sink=reports&lsn=7:0/1", 400),
        ("sink=reports&lsn=7/2:0/1&timeout=x", 400), ("sink=reports&lsn=7/2:0/1&timeout=nan", 400),
        ("sink=reports&lsn=7/2:0/1&timeout=31", 400), ("sink=reports&lsn=7/2:0/1&timeout=-1", 400),
        ("sink=cache&lsn=7/2:0/1", 404),
        ("sink=reports&lsn=0/1", 400), ("sink=reports&lsn=0/1&epoch=0", 400), ("sink=reports&lsn=0/1&epoch=x", 400),
        ("sink=reports&lsn=7/2:0/1&epoch=3", 400), ("sink=reports&lsn=7/2:0/1&tables=orders", 400),
        ("sink=reports&lsn=7/2:0/1&tables=", 400), ("sink=reports&lsn=7/2:0/1&tables=public.a,,public.b", 400),
    ],
)  # fmt: skip
def test_a_request_that_does_not_fit_says_how_to_ask(served: Served, query: str, status: int) -> None:
    found, said = served.get(query)
    assert (found, served.connected) == (status, 0)
    assert said["reason"] and said["hint"] and not said["shown"]


def fill(served: Served, one_more: Callable[[], None]) -> None:
    """Have as many wait as can. A look takes a room itself for a moment, so one that waits may be refused meanwhile."""
    for _ in range(MOST):
        one_more()

    def full() -> bool:
        if served.wait("7/2:0/50")[0] == HTTPStatus.TOO_MANY_REQUESTS:
            return True
        one_more()
        return False

    wait_until(full, 20)


def test_a_client_that_left_makes_room(served: Served) -> None:
    """Its thread would wait for the rest of its 30 s, and others be refused."""
    request = b"GET /wait?sink=reports&lsn=7/2:0/60&timeout=30 HTTP/1.0\r\n\r\n"
    with contextlib.ExitStack() as opened:

        def one_more() -> None:
            line = opened.enter_context(socket.create_connection(("127.0.0.1", served.server.port)))
            line.sendall(request)

        fill(served, one_more)
        left_s = SYSTEM_CLOCK.monotonic()
    wait_until(lambda: served.wait("7/2:0/50")[0] == HTTPStatus.OK, 20)
    assert SYSTEM_CLOCK.monotonic() - left_s < 20


def test_so_many_wait_at_once_and_no_more(served: Served) -> None:
    with ThreadPoolExecutor(MOST) as threads:
        asked = {"sink": "reports", "lsn": "7/2:0/60", "timeout": "30"}
        waiting = []
        fill(served, lambda: waiting.append(threads.submit(served.page.answer, asked, lambda: False)))
        # Other sinks have room of their own.
        assert served.get("sink=other&lsn=7/2:0/60&timeout=0")[0] == HTTPStatus.GATEWAY_TIMEOUT
        served.commit(replace(SHOWN, lsn=0x60))
        statuses = [answer.result(60).status for answer in waiting]
        assert statuses.count(HTTPStatus.OK) == MOST
        assert set(statuses) <= {HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS}, "of those that a look was ahead of"
    assert served.wait("7/2:0/60", 20)[0] == HTTPStatus.OK
    assert [one.name for one in threading.enumerate()].count("freshness") == 2
    assert served.connected == 2
