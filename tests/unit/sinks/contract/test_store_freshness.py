"""A program waits for a store by the store alone: SQLite and Delta here, real ones, and no other server."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import cdc.read
from cdc.freshness.run import POLLERS
from cdc.process.errors import CdcError, ConfigError, DamagedError, FormatError, SinkError, UsageError
from cdc.read import AsyncFreshness, Freshness, NotShown, Token
from cdc.record.position import Lsn
from cdc.record.progress import Hold, Watermark
from cdc.record.source_lineage import SourceLineage
from sinks.contract.kinds import beside, open_generations, spec_for
from sinks.contract.port import OpenSink
from sinks.contract.sink_spec import SinkSpec, open_sink
from sinks.contract.store_freshness import StoreFreshness
from tests.waiting import TIME_SCALE, wait_until

LONG_S = 30 * TIME_SCALE
KINDS = ("sql", "delta")


def at(lsn: int, system: str = "7") -> Watermark:
    ids = {"shop.public.orders": "1", "shop.public.lines": "2"}
    return Watermark(epoch=1, lsn=lsn, lineage=SourceLineage(system, 1), topic_ids=ids)


def token(lsn: int, system: str = "7") -> Token:
    return Token(system, 1, Lsn(lsn))


def options(kind: str, folder: Path) -> dict[str, Any]:
    return {"url": f"sqlite:///{folder}/store.db"} if kind == "sql" else {"path": str(folder / "warehouse")}


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    return request.param, options(request.param, tmp_path)


@pytest.fixture
def store(place: tuple[str, dict[str, Any]]) -> Iterator[OpenSink]:
    kind, where = place
    with contextlib.closing(open_sink(spec_for(kind, prefix="shop", options=where))) as opened:
        yield opened


def test_it_waits_by_the_store_alone(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    with Freshness(kind, "shop", **where) as freshness:
        with pytest.raises(NotShown, match=f"the {kind} store of shop has no watermark yet; waited 0.2 s"):
            freshness.wait(token(9), timeout_s=0.2)
        store.commit(at(9))
        assert freshness.wait(token(9), timeout_s=LONG_S).lsn == 9
        with pytest.raises(NotShown, match=r"stands at 0/9, and the token at 0/A; waited 0\.2 s"):
            freshness.wait(token(10), timeout_s=0.2)
        later = Thread(target=store.commit, args=(at(10),))
        later.start()
        assert freshness.wait(token(10), timeout_s=LONG_S).lsn == 10
        later.join()
    assert len(POLLERS) == 0


def test_another_servers_token_is_never_shown(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    """As of a process that lives on while the pipeline begins anew on another server, in a newer epoch."""
    kind, where = place
    store.commit(Watermark(epoch=2, lsn=10**9, lineage=SourceLineage("8", 1)))
    with Freshness(kind, "shop", **where) as freshness:
        with pytest.raises(NotShown, match="shop shows server 8/1, and the token is of 7/1") as refused:
            freshness.wait(token(5), timeout_s=0.2)
        assert "take a new token" in refused.value.hint
        store.commit(Watermark(epoch=2, lsn=10**9))
        with pytest.raises(NotShown, match="does not name the server"):
            freshness.wait(token(5), timeout_s=0.2)


def test_asyncio_waits_beside_threads_on_one_poller(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    store.commit(at(5))

    async def waits() -> list[int]:
        async with AsyncFreshness(kind, "shop", **where) as freshness, AsyncFreshness(kind, "shop", **where) as other:
            assert len(POLLERS) == 1
            asked = [freshness.wait(token(6), timeout_s=LONG_S), other.wait(token(6), timeout_s=LONG_S)]
            both = asyncio.gather(*asked)
            await asyncio.to_thread(store.commit, at(6))
            found = await both
            with pytest.raises(NotShown, match="stands at 0/6"):
                await freshness.wait(token(7), timeout_s=0.1)
            given_up = asyncio.create_task(freshness.wait(token(7), timeout_s=LONG_S))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            return [mark.lsn for mark in found]

    assert asyncio.run(waits()) == [6, 6]
    assert len(POLLERS) == 0


def test_a_rebuild_is_followed(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    spec = spec_for(kind, prefix="shop", options=where)
    store.commit(at(5))
    with Freshness(kind, "shop", **where) as freshness:
        assert freshness.wait(token(5), timeout_s=LONG_S).lsn == 5
        with contextlib.closing(open_sink(beside(spec, 2))) as built:
            built.commit(at(8))
        with contextlib.closing(open_generations(spec)) as generations:
            generations.switch(2, [])
        wait_until(lambda: freshness.wait(token(8), timeout_s=1).lsn == 8, 30)


class Place:
    """What a program reads from: the store, or Postgres."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    async def __aenter__(self) -> Place:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True


def test_it_reads_from_the_store_if_fresh_else_from_postgres(
    place: tuple[str, dict[str, Any]], store: OpenSink
) -> None:
    kind, where = place
    store.commit(at(5))
    cache, postgres, why = Place("cache"), Place("postgres"), list[CdcError]()
    with Freshness(kind, "shop", **where) as freshness:
        reading = partial(freshness.reading, store=cache, otherwise=lambda: postgres, told=why.append)
        with reading(None) as found:
            assert found.name == "cache"
        with reading(token(5), timeout_s=LONG_S) as found:
            assert (found.name, cache.closed, postgres.closed) == ("cache", False, False)
        with reading(token(6), timeout_s=0.1) as found:
            assert found.name == "postgres"
        assert (postgres.closed, [type(one) for one in why]) == (True, [NotShown])
        with pytest.raises(ValueError, match="the program's own") as own, reading(token(6), timeout_s=0.1):
            raise ValueError("the program's own")
        assert own.value.__context__ is None


def test_asyncio_reads_from_the_store_or_postgres(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    store.commit(at(5))
    cache, postgres = Place("cache"), Place("postgres")

    async def names() -> list[str]:
        found = []
        async with AsyncFreshness(kind, "shop", **where) as freshness:
            for asked, within_s in ((None, 0.0), (token(5), LONG_S), (token(6), 0.1)):
                async with freshness.reading(asked, cache, lambda: postgres, timeout_s=within_s) as reader:
                    found.append(reader.name)
        return found

    assert asyncio.run(names()) == ["cache", "cache", "postgres"]
    assert (cache.closed, postgres.closed) == (False, True)


def test_a_store_that_is_away_says_so_without_its_password() -> None:
    url = "postgresql+psycopg://shop@127.0.0.1:1/shop"
    with Freshness("sql", "shop", url=url, password="s3cret-word") as freshness:
        with pytest.raises(NotShown, match="the sql store of shop has not answered within 1e-09 s"):
            freshness.wait(token(1), timeout_s=1e-9)
        with pytest.raises(SinkError, match="cannot be reached") as away:
            freshness.wait(token(1), timeout_s=LONG_S)
        with freshness.reading(token(1), Place("cache"), lambda: Place("postgres"), timeout_s=LONG_S) as found:
            assert found.name == "postgres"
    assert "s3cret-word" not in away.value.message + repr(away.value)
    with pytest.raises(ConfigError, match="no kind of sink called rediss"):
        Freshness("rediss", "shop", url="rediss://127.0.0.1")


HOLD = Hold(table="public.orders", reason="public.orders: no column takes it")


def test_reading_counts_the_tables_that_are_read(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    store.commit(replace(at(5), held={"shop.public.orders": HOLD}))
    asked = {("public.lines",): "cache", ("public.orders",): "postgres", (): "postgres", ("public.no",): "postgres"}

    async def awaited(tables: tuple[str, ...]) -> str:
        async with AsyncFreshness(kind, "shop", **where) as freshness:
            one, other, within_s = Place("cache"), Place("postgres"), _within_s(tables)
            async with freshness.reading(token(5), one, lambda: other, timeout_s=within_s, tables=tables) as found:
                return found.name

    with Freshness(kind, "shop", **where) as freshness:
        for tables, name in asked.items():
            one, other, within_s = Place("cache"), Place("postgres"), _within_s(tables)
            with freshness.reading(token(5), one, partial(_same, other), timeout_s=within_s, tables=tables) as found:
                assert found.name == name
            assert asyncio.run(awaited(tables)) == name


def _same(place: Place) -> Place:
    return place


def _within_s(tables: tuple[str, ...]) -> float:
    return 0 if tables == ("public.no",) else LONG_S


def test_no_time_at_all_looks_once(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    store.commit(at(5))

    async def awaited() -> int:
        async with AsyncFreshness(kind, "shop", **where) as freshness:
            return (await freshness.wait(token(5), timeout_s=0)).lsn

    with Freshness(kind, "shop", **where) as freshness:
        assert freshness.wait(token(5), timeout_s=LONG_S).lsn == 5
        for _ in range(3):
            assert freshness.wait(token(5), timeout_s=0).lsn == 5
        with pytest.raises(NotShown, match="stands at 0/5, and the token at 0/6"):
            freshness.wait(token(6), timeout_s=0)
        assert asyncio.run(awaited()) == 5


def test_what_is_no_question_is_refused_at_once(tmp_path: Path) -> None:
    cache: Any = Place("cache")
    with Freshness("delta", "shop", path=str(tmp_path)) as freshness:
        wrong: list[dict[str, Any]] = [
            {"tables": "public.orders"}, {"tables": ["orders"]}, {"timeout_s": -1}, {"timeout_s": float("nan")},
        ]  # fmt: skip
        for one in wrong:
            with pytest.raises(UsageError):
                freshness.wait(token(1), **one)
            with pytest.raises(UsageError), freshness.reading(token(1), cache, lambda: cache, **one):
                pass
        for text in ("7/1:0/5", Lsn(5)):
            with pytest.raises(UsageError, match="only a token"):
                freshness.wait(text)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the option path is a list"):
        Freshness("delta", "shop", path=[str(tmp_path)])  # type: ignore[arg-type]
    assert len(POLLERS) == 0


class Refusing:
    """A store that cannot be opened."""

    def __init__(self, why: CdcError) -> None:
        self.why = why

    def __call__(self, spec: SinkSpec) -> OpenSink:
        raise self.why


@pytest.mark.parametrize(
    "why", [FormatError("a newer version wrote it"), DamagedError("it is damaged"), ConfigError("no such package")]
)
def test_reading_takes_postgres_whatever_the_look_says(why: CdcError) -> None:
    spec, told = spec_for("delta", prefix="shop", options={"path": "/nowhere"}), list[CdcError]()
    cache, postgres = Place("cache"), Place("postgres")
    with (
        StoreFreshness.of(spec, "it", Refusing(why)) as freshness,
        freshness.reading(token(1), cache, lambda: postgres, timeout_s=LONG_S, told=told.append) as found,
    ):
        assert found.name == "postgres"
    assert told == [why]

    async def awaited() -> str:
        async with (
            AsyncFreshness.of(spec, "it", Refusing(why)) as freshness,
            freshness.reading(token(1), cache, lambda: postgres, timeout_s=LONG_S) as found,
        ):
            return found.name

    assert asyncio.run(awaited()) == "postgres"


def test_stores_are_told_apart_by_name_and_secrets(tmp_path: Path) -> None:
    where: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/store.db"}
    several = [
        Freshness("sql", "shop", **where), Freshness("sql", "shop", **where), Freshness("sql", "other", **where),
        Freshness("sql", "shop", password="canary-1", **where), Freshness("sql", "shop", password="canary-2", **where),
        Freshness("sql", "shop", secrets={"token": "canary-2"}, **where),
    ]  # fmt: skip
    assert len(POLLERS) == 5
    for one in several:
        one.close()
    assert len(POLLERS) == 0


def test_waits_that_give_up_leave_nothing_behind(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    store.commit(at(5))

    async def awaited() -> None:
        async with AsyncFreshness(kind, "shop", **where) as freshness:
            with pytest.raises(NotShown):
                await freshness.wait(token(6), timeout_s=0.01)
            assert POLLERS.waiting == 0
            given_up = asyncio.create_task(freshness.wait(token(6), timeout_s=LONG_S))
            await asyncio.sleep(0)
            assert POLLERS.waiting == 1
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert POLLERS.waiting == 0

    with Freshness(kind, "shop", **where) as freshness:
        for _ in range(3):
            with pytest.raises(NotShown):
                freshness.wait(token(6), timeout_s=0.01)
            assert POLLERS.waiting == 0
    asyncio.run(awaited())


def test_closing_ends_the_waits_of_that_one_alone(place: tuple[str, dict[str, Any]], store: OpenSink) -> None:
    kind, where = place
    store.commit(at(5))
    with Freshness(kind, "shop", **where) as other, ThreadPoolExecutor(2) as threads:
        closing = Freshness(kind, "shop", **where)
        ended = threads.submit(closing.wait, token(6), timeout_s=LONG_S)
        goes_on = threads.submit(other.wait, token(6), timeout_s=LONG_S)
        wait_until(lambda: POLLERS.waiting == 2, 20)
        closing.close()
        assert isinstance(ended.exception(LONG_S / 3), SinkError)
        store.commit(at(6))
        assert goes_on.result(LONG_S).lsn == 6


def test_a_closed_one_waits_for_nothing(tmp_path: Path) -> None:
    freshness = Freshness("delta", "shop", path=str(tmp_path))
    freshness.close()
    freshness.close()
    with pytest.raises(SinkError, match="was closed"):
        freshness.wait(token(1))


def test_a_program_loads_the_client_of_its_store_alone() -> None:
    code = "import sys; from cdc.read import Freshness, Token, token; print({'redis', 'deltalake'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", cdc.read.__all__)
def test_each_name_for_readers_is_there(name: str) -> None:
    assert getattr(cdc.read, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'Cachet'"):
        _ = cdc.read.Cachet  # type: ignore[attr-defined]
