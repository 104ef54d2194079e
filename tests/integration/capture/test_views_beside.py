"""Views beside a capture that reads tables again, selects long values again and sets tables aside (V25)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cdc.record.tables_aside import Cause
from cdc.views.log_cut import Fence
from cdc.views.view_runner import ViewRunner
from connectors.views.view_planning import newest_shapes, plan_view
from connectors.views.view_running import ensure_view, opened_keeper
from connectors.views.view_topics import known_views
from tests.integration.capture.later import ask, over
from tests.integration.capture.pipeline import Pipeline, Record
from tests.integration.capture.test_aside import aside, follows, is_aside
from tests.integration.capture.test_visibility import stopped, walsender
from tests.integration.capture.test_waiting import locked
from tests.waiting import wait_until

TOTALS = """select o.id, o.total, (select coalesce(sum(l.qty), 0) from lines l where l.order_id = o.id) as sum,
  (select count(*) from lines l where l.order_id = o.id) as lines from orders o"""
BODIES = "select d.id, d.n, d.stamp, left(d.body, 6) as begins from docs d"


class Beside:
    """A view's runner in a thread of its own. ``keeper``: the runner, once it has begun."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self._settings = pipeline.settings
        self._name = name
        self._stop = threading.Event()
        self.keeper: ViewRunner | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            view = plan_view(self._settings, self._name, newest_shapes(self._settings))
            with opened_keeper(self._settings, view, ensure_view(self._settings, view)) as keeper:
                self.keeper = keeper
                while not self._stop.is_set():
                    keeper.turn()
        except BaseException as error:
            self.error = error

    def until(self, lsn: int) -> Fence:
        """Wait until everything below an LSN is claimed."""

        def reached() -> Fence | None:
            assert self.error is None, self.error
            keeper = self.keeper
            return keeper.claimed if keeper is not None and keeper.level and keeper.claimed.lsn >= lsn else None

        found = wait_until(reached, 60, lambda: self.keeper and self.keeper.claimed)
        assert found is not None
        return found

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert self.error is None, self.error


@contextmanager
def kept(pipeline: Pipeline, name: str) -> Iterator[Beside]:
    """A view that is kept meanwhile."""
    beside = Beside(pipeline, name)
    try:
        yield beside
    finally:
        beside.end()


@contextmanager
def writing(pipeline: Pipeline, write: Callable[[Any, int], None]) -> Iterator[None]:
    """Transactions one after the other, meanwhile."""
    stop = threading.Event()

    def run() -> None:
        with pipeline.session() as session:
            number = 0
            while not stop.is_set():
                number += 1
                with session.transaction():
                    write(session, number)

    writer = threading.Thread(target=run)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def with_view(pipeline: Pipeline, folder: Path, name: str, sql: str) -> None:
    (folder / f"{name}.sql").write_text(sql, encoding="utf-8")
    pipeline.document["views"] = {name: {"sql": str(folder / f"{name}.sql"), "state": str(folder / "state")}}


def documents(pipeline: Pipeline, name: str) -> list[Record]:
    """Every document that was ever published, in order."""
    return [one for one in pipeline.records(f"view.{name}.1") if one.value is not None and one.value["after"]]


MOVES = """do $$ begin
for part in 1..6 loop
  update noise set n = n + 1;
  commit;
  for number in 1..400 loop
    with moved as (update lines l set order_id = 1 + (number * 31 + part) % 20 from lines o
                   where o.id = l.id and l.id = (number * 7919 * part) % 4000 + 1
                   returning o.order_id as old, l.order_id as new, l.qty),
    deltas as (select old as id, -qty as by from moved union all select new, qty from moved)
    update orders o set total = total + d.by
      from (select id, sum(by) as by from deltas group by id) d where d.id = o.id;
    commit;
  end loop;
end loop;
end $$"""


@pytest.mark.slow
def test_v25_a_child_read_ahead_of_moves_shows_no_half(pipeline: Pipeline, tmp_path: Path) -> None:
    """Lines moved between orders, whose totals changed with them, while the stream stood still. Capture reads the lines
    as they are by then, puts them before the moves, and comes to the moves behind that."""
    with_view(pipeline, tmp_path, "totals", TOTALS)
    pipeline.prepare_with_rows(
        "create table noise (id int primary key, n int)",
        "insert into noise select g, 0 from generate_series(1, 150000) g",
        "create table orders (id int primary key, total bigint not null)",
        "create table lines (id int primary key, order_id int not null, qty int not null)",
        "insert into orders select g, 0 from generate_series(1, 20) g",
        "insert into lines select g, 1 + g % 20, g from generate_series(1, 4000) g",
        "update orders o set total = (select sum(qty) from lines where order_id = o.id)",
    )
    with pipeline.capturing():
        with kept(pipeline, "totals") as beside:
            beside.until(pipeline.settle())
            with stopped(walsender(pipeline)):
                before = pipeline.fence()
                pipeline.execute(MOVES)
                behind = pipeline.fence()
                assert over(pipeline, ask(pipeline, "public.lines"), 60).state == "done"
            fence = beside.until(pipeline.settle(90))
        found = documents(pipeline, "totals")
        again = [one for one in pipeline.records("lines") if one.op == "r" and "seen_lsn" in one.value["source"]]
    sources = [one.value["source"] for one in again]
    assert len(again) == 4000
    assert max(source["commit_lsn"] for source in sources) <= before, "the rows stand before the moves"
    assert min(source["seen_lsn"] for source in sources) >= behind, "and are as the moves left them"
    rows = [one.value["after"] for one in found]
    assert len(rows) >= 40, "each order before the moves, and at their end at the latest"
    assert [row for row in rows if int(row["total"]) != int(row["sum"])][:3] == []
    newest = {row["id"]: row for row in rows}
    assert sum(row["lines"] for row in newest.values()) == 4000
    assert fence.lsn > max(source["seen_lsn"] for source in sources)


@pytest.mark.slow
def test_v25_a_value_selected_again_is_not_shown_too_early(pipeline: Pipeline, tmp_path: Path) -> None:
    """A long text and a stamp change together. Between two such changes others leave the text out."""
    with_view(pipeline, tmp_path, "bodies", BODIES)
    pipeline.prepare_with_rows(
        "create table docs (id int primary key, n int not null, stamp text not null, body text not null)",
        "alter table docs alter body set storage external",
        "insert into docs select g, 0, '000000', '000000' || repeat('x', 20000) from generate_series(1, 5) g",
    )

    def change(session: Any, number: int) -> None:
        if number % 4:
            session.execute("update docs set n = n + 1 where id = %s", [number % 5 + 1])
        else:
            stamp, key = f"{number:06}", number // 4 % 5 + 1
            body = stamp + "y" * 20_000
            session.execute("update docs set stamp = %s, body = %s where id = %s", [stamp, body, key])

    with pipeline.capturing():
        with kept(pipeline, "bodies") as beside:
            with writing(pipeline, change):
                wait_until(lambda: beside.keeper and pipeline.count("docs") > 3000, 60)
                wait_until(lambda: len(documents(pipeline, "bodies")) > 20, 60)
            beside.until(pipeline.settle())
        found = documents(pipeline, "bodies")
        said = [one.value["source"]["reselected"] for one in pipeline.records("docs") if _reselected(one)]
    assert {name for one in said for name in one["columns"]} == {"body"}
    assert len(said) > 500
    rows = [one.value["after"] for one in found]
    assert [row for row in rows if row["stamp"] != row["begins"]][:3] == []


def _reselected(record: Record) -> bool:
    return record.value is not None and "reselected" in record.value["source"]


@pytest.mark.slow
def test_v15_a_table_set_aside_holds_its_view(pipeline: Pipeline, tmp_path: Path) -> None:
    with_view(pipeline, tmp_path, "named", "select f.id, t.n from free f left join t on t.id = f.id")
    pipeline.document["capture"]["waiting_limit"] = "200kB"
    pipeline.prepare_with_rows(
        "create table t (id int primary key, doc text, n int)",
        "alter table t alter doc set storage external",
        "create table free (id int primary key)",
        "insert into t select n, repeat('d', 5000), n from generate_series(1, 3) n",
    )

    def held() -> str:
        progress = known_views(pipeline.settings).progress.get("named")
        return "" if progress is None else "; ".join(progress.aside.values())

    with pipeline.capturing(), kept(pipeline, "named") as beside:
        pipeline.execute("insert into free values (1)")
        beside.until(pipeline.settle())
        many = "insert into t select n, repeat('y', 1000), 0 from generate_series(10, 2000) n"
        with locked(pipeline, many, "update t set n = 7 where id = 2"):
            is_aside(pipeline, Cause.LOCKED)
            pipeline.execute("insert into free values (2)")
            pipeline.settle()
            wait_until(lambda: "public.t is set aside" in held(), 30, held)
            assert beside.keeper is not None
            state = aside(pipeline)
            assert state is not None
            assert beside.keeper.claimed.lsn <= state.since_lsn
            assert [one.value["after"]["id"] for one in documents(pipeline, "named")] == [1]
        follows(pipeline)
        assert aside(pipeline) is None
        beside.until(pipeline.settle())
        wait_until(lambda: not held(), 30, held)
    shown = {one.value["after"]["id"]: one.value["after"]["n"] for one in documents(pipeline, "named")}
    assert shown == {1: 2, 2: 7}
