"""The past of tables by Spark, from histories in a warehouse: versions, and several tables as of one cut."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdc.process.errors import ConfigError, TopicError, UsageError
from cdc.read import as_of, history
from sinks.contract.kinds import spec_for
from sinks.contract.sink_spec import open_sink
from spark.streams.past_join import PastTable, joined_events, refusal_in
from spark.streams.typed_events import Events
from tests.contract.histories import BOOK, HistoryFeeding, Past, cut, lsn_text, sorted_events
from tests.contract.orders import order
from tests.contract.stores import Store, closing
from tests.contract.test_histories import SOME, past_of
from tests.contract.topics import at
from tests.settings_file import write_settings

pytestmark = pytest.mark.slow
EVENTS = Events(
    name="requests",
    topic="shop.outbox.Request",
    time="at",
    late_s=60,
    schema="at timestamp, id int",
    as_of="public.orders",
    on=("id",),
)
NAMES = ["id", "status", "_key", "_op", "_xid", "_from", "_to", "_current"]


class Lake:
    """A Delta warehouse with the history of one table."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder, self.session = folder, session
        self.path = str(folder / "lake")
        self.config = str(
            write_settings(
                folder,
                {
                    "name": "shop",
                    "source": {"dsn": "host=127.0.0.1", "tables": ["public.orders"]},
                    "log": {"bootstrap_servers": "127.0.0.1:1"},
                    "sinks": {"lake": {"kind": "delta", "path": self.path, "history": ["public.orders"]}},
                },
            )
        )
        self.feeding = HistoryFeeding(Store("delta", spec_for("delta", prefix="shop", options={"path": self.path})))
        self.feeding.log.orders.upsert(order(1), at(1))

    @property
    def past(self) -> Past:
        return self.feeding.past

    def frame(self) -> DataFrame:
        return self.session.read.format("delta").load(f"{self.path}/public/orders__history")

    def rows(self, **asked: Any) -> dict[int, str]:
        found = as_of({"public.orders": self.frame()}, sink="lake", config=self.config, **asked)["public.orders"]
        assert found.columns == ["id", "status", "note"]
        return {row.id: row.status for row in found.collect()}


@pytest.fixture
def lake(tmp_path: Path, spark_session: SparkSession) -> Iterator[Lake]:
    made = Lake(tmp_path, spark_session)
    with closing(made.feeding.store):
        yield made


def lived(past: Past) -> None:
    past.snapshot({1: "first", 2: "first"})
    past.commit()
    past.put(1, "second")
    past.put(3, "new")
    past.commit()
    past.delete(2)
    past.rekey(3, 4)
    past.commit()
    past.read(hurried=(1, "third"))
    past.commit()
    past.put(4, "new")
    past.put(4, "more")
    past.commit()
    past.truncate()
    past.put(5, "fifth")
    past.commit()


def test_e6_each_cut_is_the_table_there(lake: Lake, tmp_path: Path) -> None:
    lived(lake.past)
    lake.feeding.level()
    for lsn, state in lake.past.states.items():
        assert state is not None
        assert lake.rows(lsn=lsn_text(lsn)) == {number: row["status"] for number, row in state.items()}, lsn
    assert lake.rows() == {5: "fifth"}
    # The views of SQL stores say the same.
    reports = open_sink(spec_for("sql", prefix="shop", options={"url": f"sqlite:///{tmp_path}/reports.db"}))
    reports.sink.apply(sorted_events(lake.past.records), BOOK)
    reports.sink.show()
    reports.close()
    versions = sorted(tuple(row) for row in history(lake.frame()).select(NAMES).collect())
    with sqlite3.connect(tmp_path / "reports.db") as database:
        assert database.execute(f"select {', '.join(NAMES)} from public_orders__scd2 order by id, status").fetchall()
        found = database.execute(f"select {', '.join(NAMES)} from public_orders__scd2")
        assert sorted(found.fetchall()) == versions
    # Two changes that do not concern a tracked column are one version.
    tracked = history(lake.frame(), track=["note"]).where("_key = '4'").collect()
    assert [(row._op, row._current) for row in tracked] == [("c", False)]
    assert [row._key for row in history(lake.frame(), track=["note"]).collect()].count("1") == 1
    with pytest.raises(UsageError, match="the history has no column price"):
        history(lake.frame(), track=["price"])


@pytest.mark.parametrize("seed", range(2))
def test_e6_any_past_is_the_table_at_each_cut(lake: Lake, seed: int) -> None:
    """Or it is refused, where the history cannot know it."""
    chance = random.Random(seed)
    answered = 0
    past = lake.feeding.log.others = past_of([chance.choice(SOME) for _ in range(30)], begun=True, partitions=1)
    lake.feeding.level()
    for lsn, state in past.states.items():
        try:
            found = lake.rows(lsn=lsn_text(lsn))
        except UsageError:
            continue
        assert state is not None, f"{lsn} was answered, and the history cannot know it"
        assert found == {number: row["status"] for number, row in state.items()}, lsn
        answered += 1
    assert answered > 0


def test_e7_a_time_is_the_cut_before_the_first_later_commit(lake: Lake) -> None:
    """The commit of LSN 4 has an earlier time than the one before it."""
    past = lake.past
    past.times = {2: 2, 3: 9, 4: 4, 5: 12}
    past.snapshot({1: "first"})
    past.commit()
    for status in ("second", "third", "fourth", "fifth"):
        past.put(1, status)
        past.commit()
    lake.feeding.level()
    told = {seconds: lake.rows(time=moment(seconds))[1] for seconds in (2, 5, 8, 9, 11)}
    assert told == {2: "second", 5: "second", 8: "second", 9: "fourth", 11: "fourth"}
    with pytest.raises(UsageError, match="the store has no later commit of them yet"):
        lake.rows(time=moment(13))
    with pytest.raises(UsageError, match="its history begins later"):
        lake.rows(time=moment(-(10**8)))
    with pytest.raises(UsageError, match="not an LSN"):
        lake.rows(lsn="foo")
    with pytest.raises(UsageError, match="the time has no zone"):
        lake.rows(time=moment(8).replace(tzinfo=None))


def test_what_cannot_be_known_is_refused(lake: Lake) -> None:
    past = lake.past
    past.put(1, "first")
    past.commit()
    past.lose(1, "lost")
    past.put(2, "second")
    past.commit()
    past.read()
    past.too_large(2, "large")
    past.commit()
    lake.feeding.level()
    path = f"{lake.path}/public/orders__history"
    old = lake.session.read.format("delta").option("versionAsOf", deltalake.DeltaTable(path).version()).load(path)
    read = next(lsn for lsn, state in past.states.items() if state is not None and 2 in state)
    assert lake.rows(lsn=lsn_text(read)) == {1: "lost", 2: "second"}
    for lsn, words in (
        (1, "its history begins at"),
        (3, "its history has a gap there, and changes are missing"),
        (read - 1, "its history has a gap there, and changes are missing"),
        (past.lsn, "a change of one of its rows was too large to be kept"),
        (past.lsn + 500, "the store shows the source up to"),
    ):
        with pytest.raises(UsageError, match=words):
            lake.rows(lsn=lsn_text(lsn))
    past.put(2, "small")
    past.commit()
    lake.feeding.level()
    with pytest.raises(UsageError, match=r"the frame of public\.orders__history is older than what"):
        as_of({"public.orders": old}, sink="lake", config=lake.config)
    with pytest.raises(UsageError, match=r"the store of lake does not show public\.lines__history"):
        as_of({"public.lines": old}, sink="lake", config=lake.config)
    with pytest.raises(UsageError, match="the frame is no history of a table: it has no column"):
        history(lake.session.range(1))
    assert lake.rows() == {1: "lost", 2: "small"}


def test_e11_a_table_that_was_empty_is_known(lake: Lake) -> None:
    """From its first snapshot on, and a later reading takes nothing of that away."""
    past = lake.past
    past.snapshot({})
    past.commit()
    past.commit()
    past.put(1, "first")
    past.commit()
    before = [1, 2, 3]
    lake.feeding.level()
    for _ in range(2):
        found = events_at(lake, EVENTS, before).collect()
        joined = [row for row in found if row.orders is not None]
        assert [(row.id, row.orders.status) for row in joined] == [(1, "first")]
        assert len(found) == 5 * len(before)
        assert "_exact" in joined[0].orders
        assert lake.rows(lsn=lsn_text(2)) == {}
        past.read()
        past.commit()
        lake.feeding.level()


def events_at(lake: Lake, given: Events, lsns: Iterable[int]) -> DataFrame:
    """One event for each of these commits and each of five ids, as they are judged."""
    rows = [
        (b"k", b"v", 0, 0, None, moment(lsn), number, cut(lsn)._replace(tx_seq=1).text())
        for lsn in lsns
        for number in range(1, 6)
    ]
    columns = "key binary, value binary, partition int, offset long, _reason string, at timestamp, id int, _pos string"
    frame = lake.session.createDataFrame(rows, columns)
    past = PastTable(table="public.orders", frame=lake.frame(), key=("id",), waits_for="")
    return joined_events(frame, given, {given.name: past})


def test_e11_an_event_has_the_row_of_its_commit(lake: Lake) -> None:
    """At every commit as the history answers it, and refused at every other one."""
    past = lake.past
    lived(past)
    past.lose(5, "lost")
    past.put(5, "after")
    past.commit()
    past.read()
    # What was read may be of later than this commit.
    past.states[past.lsn] = None
    past.commit()
    past.too_large(5, "large")
    past.commit()
    past.put(5, "small")
    past.commit()
    lake.feeding.level()
    known = {lsn - 1: state for lsn, state in past.states.items() if state is not None}
    rows = events_at(lake, EVENTS, known).collect()
    found: dict[str, dict[int, str]] = {row._pos: {} for row in rows}
    for row in rows:
        if row.orders is not None:
            found[row._pos][row.id] = row.orders.status
    expected = {
        cut(lsn)._replace(tx_seq=1).text(): {number: row["status"] for number, row in state.items()}
        for lsn, state in known.items()
    }
    assert found == expected
    unknown = [lsn - 1 for lsn, state in past.states.items() if state is None]
    assert len(unknown) > 2
    for lsn in (-1, *unknown):
        with pytest.raises(PySparkException) as failure:
            events_at(lake, EVENTS, [lsn]).where("orders.status = 'none'").collect()
        refused = refusal_in("traffic", {"requests": "public.orders"}, str(failure.value))
        assert isinstance(refused, TopicError)
        assert f"cannot join public.orders with an event of {lsn_text(lsn)}" in refused.message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"on": ("id", "at")}, "the table's key has 1 columns, and on names 2"),
        ({"on": ("at",)}, "at is timestamp, and the table's id is"),
        ({"on": ("number",)}, "the events have no column number"),
    ],
)
def test_columns_that_do_not_fit_are_refused(lake: Lake, given: dict[str, Any], words: str) -> None:
    lake.past.put(1, "first")
    lake.past.commit()
    lake.feeding.level()
    with pytest.raises(ConfigError, match=words):
        events_at(lake, replace(EVENTS, **given), [1])


def moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + seconds, UTC)
