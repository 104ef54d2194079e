"""The first of the three kinds of a store's errors, over every store: away, which passes with time (hazard H100).

A server stands behind a proxy that refuses connections and ends those that are open. A store in files may write no
byte, as on a full disk. The other two kinds are in ``test_faults.py``.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import pytest

from cdc.process.clock import ManualClock
from cdc.process.errors import Retry
from cdc.record.progress import Watermark
from sinks.contract.port import OpenSink, StoreAway
from tests.contract.orders import SHAPES, order, statuses
from tests.contract.stores import Store, closing
from tests.contract.topics import ORDERS, Topic, at, batch
from tests.faults.proxy import Fault, Proxy

SERVERS = ("redis", "opensearch", "postgres", "postgres-generic")
MARK = Watermark(epoch=1, lsn=8, offsets={ORDERS.topic: {0: 1}})
NEXT = Watermark(epoch=1, lsn=9, offsets={ORDERS.topic: {0: 2}})


@dataclass(frozen=True)
class Reached:
    """A store whose way to it can be closed. ``proxy``: to its server; None for one in files or in memory."""

    store: Store
    clock: ManualClock
    proxy: Proxy | None

    def open(self) -> OpenSink:
        """Connect. The waits between tries take no time."""
        return self.store.open(self.clock)

    def away(self) -> AbstractContextManager[None]:
        """It does not answer, or takes nothing, meanwhile."""
        if self.store.kind == "memory":
            return self._without_memory()
        return _no_byte() if self.proxy is None else _closed(self.proxy)

    @contextmanager
    def _without_memory(self) -> Iterator[None]:
        self.store.memory.away = True
        yield
        self.store.memory.away = False


@contextmanager
def _closed(proxy: Proxy) -> Iterator[None]:
    proxy.set(Fault(refuse=True))
    proxy.cut()
    yield
    proxy.heal()


@contextmanager
def _no_byte() -> Iterator[None]:
    """No file of this process may grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def reached(store: Store) -> Iterator[Reached]:
    if store.kind not in SERVERS:
        yield Reached(store, ManualClock(), None)
        return
    assert store.spec is not None
    url = store.spec.text("url")
    port = urlsplit(url).port
    assert port is not None
    with Proxy(port) as proxy:
        options = {**store.spec.options, "url": url.replace(f":{port}", f":{proxy.port}", 1)}
        with closing(Store(store.kind, replace(store.spec, options=options))) as behind:
            yield Reached(behind, ManualClock(), proxy)


def test_h100_a_store_that_is_away_takes_the_same_again_later(reached: Reached) -> None:
    sink, topic = reached.open(), Topic()
    first, second = topic.upsert(order(1), at(1)), topic.upsert(order(2), at(2))
    sink.sink.apply(batch(first), SHAPES)
    sink.commit(MARK)
    with reached.away():
        with pytest.raises(StoreAway) as away:
            sink.sink.apply(batch(second), SHAPES)
            sink.commit(NEXT)
        assert away.value.retry is Retry.LATER
    again = reached.open()
    assert again.watermarks.read() == MARK, "it claims nothing of what was not written"
    assert again.sink.apply(batch(second), SHAPES).refused == ()
    again.commit(NEXT)
    assert again.watermarks.read() == NEXT
    assert statuses(again) == {"1": "open", "2": "open"}


def test_h100_a_store_that_is_away_is_not_taken_for_an_empty_one(reached: Reached) -> None:
    """Neither its rows nor its watermark are said to be none, and it is not opened as if it were new."""
    if reached.proxy is None:
        pytest.skip("files that cannot be written can be read")
    sink = reached.open()
    sink.sink.apply(batch(Topic().upsert(order(1), at(1))), SHAPES)
    sink.commit(MARK)
    with reached.away():
        with pytest.raises(StoreAway):
            sink.watermarks.read()
        with pytest.raises(StoreAway):
            list(sink.reader.scan(ORDERS))
        with pytest.raises(StoreAway):
            reached.open()
    again = reached.open()
    assert (again.watermarks.read(), statuses(again)) == (MARK, {"1": "open"})
